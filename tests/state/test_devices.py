"""On an accelerator: where optimizer state lies, and the generators of devices."""

from __future__ import annotations

import pytest
import torch

from samestep.state import TrackedRng, track
from state_exchange import Kept, carry

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


def stepped(device, **options):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 3).to(device)
    optimizer = (
        torch.optim.NAdam(model.parameters(), **options)
        if "capturable" in options
        else (torch.optim.AdamW(model.parameters(), **options))
    )
    model(torch.ones(1, 3, device=device)).sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.mark.parametrize(
    "options", [{}, {"fused": True}, {"foreach": True}, {"capturable": True}, {"capturable": False}], ids=str
)
def test_every_entry_lies_where_it_lay(options):
    one, other = stepped("cuda", **options), stepped("cuda", **options)
    other[1].state.clear()
    assert carry(*(track("o", optimizer, models={"m": model}) for model, optimizer in (one, other))) == []
    for before, after in zip(one[0].parameters(), other[0].parameters(), strict=True):
        devices = [
            {key: value.device for key, value in optimizer.state[parameter].items()}
            for optimizer, parameter in ((one[1], before), (other[1], after))
        ]
        assert devices[0] == devices[1]


def test_steps_of_a_training_on_the_cpu_are_counted_there():
    one, other = stepped("cpu"), stepped("cuda")
    carry(*(track("o", optimizer, models={"m": model}) for model, optimizer in (one, other)))
    state = other[1].state[other[0].weight]
    assert (state["step"].device.type, state["exp_avg"].device.type) == ("cpu", "cuda")


def test_a_device_draws_on_where_it_was():
    torch.randn(3, device="cuda")
    kept = Kept(TrackedRng())
    expected = torch.randn(5, device="cuda")
    torch.randn(7, device="cuda")
    kept.into(TrackedRng())
    assert torch.equal(torch.randn(5, device="cuda"), expected)
