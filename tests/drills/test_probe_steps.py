"""What counts as a step, whatever shape the training loop has."""

from __future__ import annotations

import itertools

import pytest

HEAD = """
import torch, random
torch.manual_seed(0)
def mlp(*sizes):
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(a, b), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers)
"""


def kinds(step):
    return sorted(step.before.optimizer)


def test_a_plain_loop_gives_one_record_per_step_with_everything_in_it(watch):
    seen = watch(
        HEAD
        + """
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
data = torch.utils.data.TensorDataset(torch.randn(12, 4), torch.randn(12, 1))
for epoch in range(2):
    for x, y in torch.utils.data.DataLoader(data, batch_size=4, shuffle=True):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad(); loss.backward(); optimizer.step(); schedule.step()
    model.eval()
    with torch.no_grad():
        model(data[:][0])
    model.train()
"""
    )
    trace = seen.trace
    assert [step.index for step in trace.steps] == [1, 2, 3, 4, 5, 6]
    assert trace.end is not None
    assert (trace.end.reason, trace.end.steps) == ("exit", 6)
    for earlier, later in itertools.pairwise(trace.steps):
        assert earlier.weights_after == later.before.weights
        assert earlier.before.weights.digest != earlier.weights_after.digest
        assert earlier.before.buffers.digest != later.before.buffers.digest
        assert earlier.before.rng["torch"] == earlier.micro_steps[0].rng["torch"]
    assert kinds(trace.steps[0]) == []
    assert kinds(trace.steps[1]) == ["0/exp_avg", "0/exp_avg_sq", "0/step"]
    assert trace.steps[3].before.optimizer["0/step"].values() == [3.0] * 6
    assert [step.before.groups[0][0]["lr"] for step in trace.steps] == pytest.approx(
        [0.1, 0.1, 0.01, 0.01, 1e-3, 1e-3]
    )
    assert [step.before.schedules[0]["last_epoch"] for step in trace.steps] == [0, 1, 2, 3, 4, 5]
    assert next(iter(trace.steps[0].before.groups[0][0])) == "lr"
    assert sorted(sample for step in trace.steps[:3] for sample in step.micro_steps[0].samples) == list(
        range(12)
    )
    assert len({step.micro_steps[0].inputs for step in trace.steps}) == 6
    assert all(step.micro_steps[0].loss > 0 for step in trace.steps)
    assert trace.end.state.weights == trace.steps[-1].weights_after
    assert not seen.events("not-followed")


def test_two_fresh_processes_record_the_same_digests(watch):
    text = (
        HEAD
        + """
model = mlp(3, 5, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(3):
    model(torch.randn(2, 3)).sum().backward(); optimizer.step(); optimizer.zero_grad()
"""
    )
    first, second = (watch(text, env={"PYTHONHASHSEED": seed}).trace for seed in ("1", "2"))
    for one, other in zip(first.steps, second.steps, strict=True):
        assert one.before.weights == other.before.weights
        assert one.before.optimizer == other.before.optimizer
        assert one.before.rng["torch"] == other.before.rng["torch"]
        assert one.micro_steps[0].inputs == other.micro_steps[0].inputs


def test_accumulation_makes_micro_steps_and_left_gradients_are_seen(watch):
    seen = watch(
        HEAD
        + """
model = mlp(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    (model(torch.randn(2, 3)).sum() / 4).backward()
    if step % 4 == 3:
        optimizer.step()
        if step > 4: optimizer.zero_grad()
"""
    )
    steps = seen.trace.steps
    assert [len(step.micro_steps) for step in steps] == [4, 4]
    assert steps[0].before.gradients is None
    assert steps[1].before.gradients is not None
    assert len({micro.inputs for step in steps for micro in step.micro_steps}) == 8


def test_gradients_that_are_cleared_before_the_backward_do_not_count(watch):
    seen = watch(
        HEAD
        + """
model = mlp(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    loss = model(torch.randn(2, 3)).sum()
    optimizer.zero_grad(set_to_none=step == 1); loss.backward(); optimizer.step()
"""
    )
    assert [step.before.gradients for step in seen.trace.steps] == [None] * 3


def test_a_gan_takes_two_steps_per_round_and_fake_images_are_no_data(watch):
    text = (
        HEAD
        + """
import sys
G, D = mlp(2, 4), mlp(4, 1)
optD, optG = torch.optim.Adam(D.parameters(), lr=0.1), torch.optim.Adam(G.parameters(), lr=float(sys.argv[1]))
for round in range(2):
    real, z = torch.randn(3, 4), torch.randn(3, 2)
    fake = G(z)
    loss = D(real).mean() - D(fake.detach()).mean()
    loss.backward(); optD.step(); optD.zero_grad(); optG.zero_grad()
    (-D(fake).mean()).backward(); optG.step(); optD.zero_grad(); optG.zero_grad()
"""
    )
    seen = watch(text, "0.1")
    steps = seen.trace.steps
    assert [[update.optimizer for update in step.updates] for step in steps] == [[0], [1], [0], [1]]
    assert [step.micro_steps[0].forwards for step in steps] == [3, 1, 3, 1]
    assert kinds(steps[3]) == ["0/exp_avg", "0/exp_avg_sq", "0/step", "1/exp_avg", "1/exp_avg_sq", "1/step"]
    other = watch(text, "0.2").trace.steps
    assert other[2].before.weights != steps[2].before.weights
    assert [m.inputs for s in other for m in s.micro_steps] == [
        m.inputs for s in steps for m in s.micro_steps
    ]


def test_optimizers_called_in_a_row_make_one_step(watch):
    seen = watch(
        HEAD
        + """
model = mlp(3, 3, 1)
first = torch.optim.Muon([p for p in model.parameters() if p.ndim == 2], lr=0.1)
second = torch.optim.AdamW([p for p in model.parameters() if p.ndim < 2], lr=0.1)
for step in range(2):
    model(torch.randn(2, 3)).sum().backward()
    first.step(); second.step(); first.zero_grad(); second.zero_grad()
"""
    )
    assert [[update.name for update in step.updates] for step in seen.trace.steps] == [["Muon", "AdamW"]] * 2


def test_an_lbfgs_closure_belongs_to_the_step_it_runs_in(watch):
    seen = watch(
        HEAD
        + """
model, x = mlp(3, 1), torch.randn(4, 3)
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
def closure():
    optimizer.zero_grad(); loss = model(x).pow(2).sum(); loss.backward(); return loss
for step in range(3):
    optimizer.step(closure)
"""
    )
    steps = seen.trace.steps
    assert [len(step.updates) for step in steps] == [1, 1, 1]
    assert all(len(step.micro_steps) > 1 for step in steps)
    assert all(micro.within_update for step in steps for micro in step.micro_steps)
    assert "0/old_dirs" in steps[1].before.optimizer
    assert all(earlier.weights_after == later.before.weights for earlier, later in itertools.pairwise(steps))


def test_a_scaler_that_skips_on_overflow_still_ends_the_step(watch):
    seen = watch(
        HEAD
        + """
model = mlp(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2)
for step in range(4):
    loss = model(torch.randn(2, 3)).sum() * (float("inf") if step == 1 else 1)
    scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update(); optimizer.zero_grad()
"""
    )
    steps = seen.trace.steps
    assert [step.updates[0].applied for step in steps] == [True, False, True, True]
    assert steps[1].weights_after == steps[1].before.weights
    assert [step.before.scalers[0]["scale"] for step in steps] == [64.0, 64.0, 32.0, 32.0]
    assert [step.before.scalers[0]["growth_tracker"] for step in steps] == [0, 1, 0, 1]


def test_loading_with_torch_distributed_checkpoint_is_no_step(watch):
    seen = watch(
        HEAD
        + """
from torch.distributed.checkpoint.state_dict import get_state_dict
model = mlp(3, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
get_state_dict(model, optimizer)
for step in range(2):
    model(torch.randn(2, 3)).sum().backward(); optimizer.step(); optimizer.zero_grad()
""",
        sabotage="optimizer",
    )
    assert [step.index for step in seen.trace.steps] == [1, 2]
    assert seen.events("idle-update") == [{"optimizer": "AdamW"}]
    assert seen.events("sabotaged") == [{"what": "optimizer", "found": True}]
    assert kinds(seen.trace.steps[0]) == []


def test_a_warm_up_from_rate_zero_is_a_step_although_no_weight_changes(watch):
    seen = watch(
        HEAD
        + """
model = mlp(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: n / 10)
for step in range(2):
    model(torch.randn(2, 3)).sum().backward(); optimizer.step(); schedule.step(); optimizer.zero_grad()
"""
    )
    assert [step.updates[0].groups[0]["lr"] for step in seen.trace.steps] == [0.0, 0.1]


def test_activation_checkpointing_and_failing_forwards_do_not_add_micro_steps(watch):
    seen = watch(
        HEAD
        + """
from torch.utils.checkpoint import checkpoint
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.a, self.b = mlp(3, 4), mlp(4, 1)
    def forward(self, x, reentrant):
        if x is None: raise ValueError
        return self.b(checkpoint(self.a, x, use_reentrant=reentrant))
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    try: model(None, True)
    except ValueError: pass
    model(torch.randn(2, 3, requires_grad=True), step % 2 == 0).sum().backward()
    optimizer.step(); optimizer.zero_grad()
    with torch.inference_mode():
        model.a(torch.randn(2, 3))
"""
    )
    assert [len(step.micro_steps) for step in seen.trace.steps] == [1] * 4


def test_an_optimizer_fused_into_the_backward_is_followed(watch):
    seen = watch(
        HEAD
        + """
model = mlp(3, 4, 1)
optimizers = {p: torch.optim.Adam([p], lr=0.1) for p in model.parameters()}
def update(p):
    optimizers[p].step(); optimizers[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for step in range(3):
    model(torch.randn(2, 3)).sum().backward()
"""
    )
    steps = seen.trace.steps
    assert [len(step.updates) for step in steps] == [4, 4, 4]
    assert steps[0].weights_after == steps[1].before.weights != steps[0].before.weights
    assert "3/exp_avg" in steps[1].before.optimizer


def test_an_optimizer_of_its_own_kind_is_reported_and_its_steps_are_found(watch):
    seen = watch(
        HEAD
        + """
model = mlp(3, 1)
for step in range(4):
    model(torch.randn(2, 3)).sum().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    model.zero_grad()
"""
    )
    assert len(seen.trace.steps) == 4
    assert {update.name for step in seen.trace.steps for update in step.updates} == {"(unknown)"}
    assert [event["what"] for event in seen.events("not-followed")] == ["optimizer"]


def test_a_loop_without_modules_and_one_with_its_own_gradients_take_steps(watch):
    seen = watch(
        HEAD
        + """
w = torch.nn.Parameter(torch.randn(3))
optimizer = torch.optim.Adam([w], lr=0.1)
for step in range(2):
    (w * torch.randn(3)).sum().backward(); optimizer.step(); optimizer.zero_grad()
for step in range(2):
    (w.grad,) = torch.autograd.grad((w * torch.randn(3)).sum(), [w]); optimizer.step(); w.grad = None
"""
    )
    assert [len(step.micro_steps) for step in seen.trace.steps] == [1, 1, 0, 0]
    assert all(step.before.weights.tensors == 1 for step in seen.trace.steps)


def test_an_optimizer_call_that_raises_does_not_swallow_the_next_steps(watch):
    seen = watch(
        HEAD
        + """
class Moody(torch.optim.SGD):
    fail = True
    def step(self, closure=None):
        if self.fail: raise RuntimeError
        return super().step(closure)
model = mlp(3, 1)
optimizer = Moody(model.parameters(), lr=0.1)
for step in range(3):
    model(torch.randn(2, 3)).sum().backward()
    try: optimizer.step()
    except RuntimeError: Moody.fail = False
    optimizer.zero_grad()
"""
    )
    assert [len(step.micro_steps) for step in seen.trace.steps] == [2, 1]


@pytest.mark.parametrize("how", ["wrapped", "in place", "function"])
def test_compiled_models_are_followed_and_compile_to_the_same_graphs(watch, how):
    text = (
        HEAD
        + f"how = {how!r}"
        + """
model = mlp(3, 4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
run = torch.compile(model, backend="eager") if how == "wrapped" else model
if how == "in place": model.compile(backend="eager")
if how == "function": run = torch.compile(lambda x: model(x), backend="eager")
for step in range(3):
    run(torch.randn(2, 3)).sum().backward(); optimizer.step(); optimizer.zero_grad()
from torch._dynamo.utils import counters
print("graphs", counters["stats"]["unique_graphs"], "breaks", len(counters["graph_break"]))
"""
    )
    seen, unwatched = watch(text), watch(text, env={"SAMESTEP_ORDERS": ""})
    assert seen.output == unwatched.output
    assert len(seen.trace.steps) == 3
    assert seen.trace.steps[0].before.weights.tensors == 4
    assert bool(seen.events("not-followed")) == (how == "function")
