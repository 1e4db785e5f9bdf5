"""Objects that frameworks wrap or make are tracked as what they are inside."""

from __future__ import annotations

import pytest
import torch

from samestep.state import track
from state_exchange import carry

pytestmark = pytest.mark.full


def test_what_accelerate_prepares_is_tracked_as_what_it_wraps():
    accelerate = pytest.importorskip("accelerate")

    def prepared():
        model = torch.nn.Linear(3, 3)
        optimizer = torch.optim.AdamW(model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        return accelerate.Accelerator(cpu=True).prepare(model, optimizer, schedule)

    one, other = prepared(), prepared()
    one[0](torch.ones(1, 3)).sum().backward()
    one[1].step()
    one[2].step()
    kinds = []
    for name, before, after in zip(("model", "optimizer", "schedule"), one, other, strict=True):
        tracked = track(name, before, models={"model": one[0]})
        kinds.append((tracked.kind.rpartition(".")[2], str(tracked.component)))
        assert carry(tracked, track(name, after, models={"model": other[0]})) == []
    assert kinds == [("Linear", "weights"), ("AdamW", "optimizer"), ("StepLR", "schedule")]
    assert other[1].param_groups[0]["lr"] == one[1].param_groups[0]["lr"]


def test_a_model_of_transformers_is_stored_once_for_tied_weights():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_embd=8, n_head=2, vocab_size=11, n_positions=8)
    one, other = (transformers.GPT2LMHeadModel(config) for _ in range(2))
    tracked = track("model", one)
    assert tracked.notes["aliases"] == {"lm_head.weight": "transformer.wte.weight"}
    assert carry(tracked, track("model", other)) == []
    schedule = transformers.get_cosine_schedule_with_warmup(torch.optim.AdamW(one.parameters()), 2, 10)
    assert "cosine" in track("schedule", schedule).notes["not_saved"][0]
