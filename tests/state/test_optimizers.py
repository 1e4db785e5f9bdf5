"""Optimizers: restored by name and exactly, the next step included; groups that changed are named."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from samestep.state import StateError, leaves, track
from state_exchange import Kept, carry


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))


def trained(model, *optimizers, steps=2):
    """Take some steps, and return the model."""
    generator = torch.Generator().manual_seed(len(optimizers))
    for _ in range(steps):
        x = torch.randn(5, 4, generator=generator)

        def closure(x=x):
            model.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            return loss

        closure()
        for optimizer in optimizers:
            optimizer.step(closure)
    return model


KINDS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "sgd-momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam-amsgrad": (torch.optim.Adam, {"amsgrad": True}),
    "adamw-foreach": (torch.optim.AdamW, {"foreach": True}),
    "adamw-fused": (torch.optim.AdamW, {"fused": True}),
    "adamw-lr-tensor": (torch.optim.AdamW, {"lr": torch.tensor(0.01), "foreach": False}),
    "adadelta": (torch.optim.Adadelta, {}),
    "adafactor": (torch.optim.Adafactor, {"lr": 0.01}),
    "adagrad": (torch.optim.Adagrad, {}),
    "adamax": (torch.optim.Adamax, {}),
    "asgd": (torch.optim.ASGD, {}),
    "lbfgs": (torch.optim.LBFGS, {"max_iter": 3}),
    "nadam": (torch.optim.NAdam, {}),
    "radam": (torch.optim.RAdam, {}),
    "rmsprop": (torch.optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "rprop": (torch.optim.Rprop, {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_steps_are_the_same(kind):
    make, options = KINDS[kind]
    one, other = net(), net(seed=9)
    before, after = (
        make(one.parameters(), **copy.deepcopy(options)),
        make(other.parameters(), **copy.deepcopy(options)),
    )
    trained(one, before)
    assert carry(track("model", one), track("model", other)) == []
    kept = Kept(track("optimizer", before, models={"model": one}))
    kept.into(track("optimizer", after, models={"model": other}))
    trained(one, before)
    trained(other, after)
    assert leaves.differences(one.state_dict(), other.state_dict()) == []
    states = [track("optimizer", o, models={"model": m}).read() for o, m in ((before, one), (after, other))]
    assert leaves.differences(*states) == []


def test_state_is_found_by_name_whatever_the_order_of_modules():
    one = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    other = nn.ModuleDict({"b": nn.Linear(2, 2), "a": nn.Linear(2, 2)})
    made = [torch.optim.Adam([m["a"].weight, m["b"].weight]) for m in (one, other)]
    for parameter, value in ((one["a"].weight, 1.0), (one["b"].weight, 2.0)):
        parameter.grad = torch.full((2, 2), value)
    made[0].step()
    assert carry(*(track("o", o, models={"m": m}) for o, m in zip(made, (one, other), strict=True))) == []
    assert float(made[1].state[other["b"].weight]["exp_avg"][0, 0]) == pytest.approx(0.2)


def test_what_was_gathered_since_is_forgotten():
    one, other = net(), net()
    before, after = torch.optim.Adam(one.parameters()), torch.optim.Adam(other.parameters())
    trained(other, after)
    assert carry(track("o", before, models={"m": one}), track("o", after, models={"m": other})) == []
    assert not after.state


def test_state_keeps_its_own_type_and_steps_stay_on_the_cpu():
    models = [net().to(torch.bfloat16) for _ in range(2)]
    made = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    for parameter in models[0].parameters():
        made[0].state[parameter]["momentum_buffer"] = torch.randn(parameter.shape, dtype=torch.float32)
    assert carry(*(track("o", o, models={"m": m}) for o, m in zip(made, models, strict=True))) == []
    assert made[1].state[models[1][0].weight]["momentum_buffer"].dtype is torch.float32


def test_optimizers_side_by_side_and_over_several_models():
    models, made = [], []
    for seed in (0, 9):
        encoder, decoder = net(seed), net(seed + 1)
        matrices = [p for m in (encoder, decoder) for p in m.parameters() if p.dim() == 2]
        others = [p for m in (encoder, decoder) for p in m.parameters() if p.dim() != 2]
        models.append({"encoder": encoder, "decoder": decoder})
        made.append((torch.optim.Muon(matrices, lr=0.1), torch.optim.AdamW(others, lr=0.2)))
    for parts, optimizers in zip(models[:1], made[:1], strict=True):
        for part in parts.values():
            trained(part, *optimizers)
    for i in range(2):
        tracked = [
            track("o", optimizers[i], models=parts) for optimizers, parts in zip(made, models, strict=True)
        ]
        assert tracked[0].read()["groups"][0]["params"][0] == ("encoder.0.weight", "encoder.0.bias")[i]
        assert carry(*tracked) == []


def test_options_of_groups_are_restored_and_those_that_are_new_here_go():
    models = [net(), net()]
    made = [
        torch.optim.AdamW([{"params": m[0].parameters(), "lr": 0.5}, {"params": m[2].parameters()}])
        for m in models
    ]
    made[0].param_groups[1] |= {"initial_lr": 3.0, "weight_decay": 7, "schedule": ("warm", 1)}
    made[1].param_groups[1]["not_saved"] = 1
    assert carry(*(track("o", o, models={"m": m}) for o, m in zip(made, models, strict=True))) == []
    group = made[1].param_groups[1]
    assert (group["initial_lr"], group["weight_decay"], group["schedule"]) == (3.0, 7, ("warm", 1))
    assert "not_saved" not in group


def test_a_learning_rate_that_is_a_tensor_stays_the_same_object():
    models = [net(), net()]
    made = [
        torch.optim.AdamW(m.parameters(), lr=torch.tensor(rate))
        for m, rate in zip(models, (0.5, 0.1), strict=True)
    ]
    rate = made[1].param_groups[0]["lr"]
    assert carry(*(track("o", o, models={"m": m}) for o, m in zip(made, models, strict=True))) == []
    assert made[1].param_groups[0]["lr"] is rate
    assert float(rate) == 0.5


def test_rates_that_are_one_tensor_here_and_two_in_the_bundle_part():
    models = [net(), net()]
    rate = torch.tensor(0.3)
    made = [
        torch.optim.AdamW([{"params": m[0].parameters(), "lr": r}, {"params": m[2].parameters(), "lr": s}])
        for m, r, s in zip(models, (torch.tensor(0.1), rate), (torch.tensor(0.2), rate), strict=True)
    ]
    assert carry(*(track("o", o, models={"m": m}) for o, m in zip(made, models, strict=True))) == []
    assert [round(float(group["lr"]), 3) for group in made[1].param_groups] == [0.1, 0.2]


def test_another_class_of_optimizer_is_refused():
    models = [net(), net()]
    made = [torch.optim.SGD(models[0].parameters(), lr=0.1), torch.optim.AdamW(models[1].parameters())]
    with pytest.raises(
        StateError, match=r"o: in the bundle torch\.optim\.sgd\.SGD, here torch\.optim\.adamw\.AdamW"
    ):
        carry(*(track("o", o, models={"m": m}) for o, m in zip(made, models, strict=True)))


def test_tensors_that_parameters_share_stay_shared():
    models = [net(), net()]
    made = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
    count = torch.tensor(4.0)
    for parameter in models[0].parameters():
        made[0].state[parameter]["count"] = count
    assert carry(*(track("o", o, models={"m": m}) for o, m in zip(made, models, strict=True))) == []
    assert len({id(entry["count"]) for entry in made[1].state.values()}) == 1


def groups_of(model, first=(0,), second=(2,)):
    return [{"params": [p for at in which for p in model[at].parameters()]} for which in (first, second)]


def failure(before, after):
    """Return what is said when the state of one optimizer is put into another."""
    one, other = net(), net()
    optimizers = [torch.optim.Adam(groups(model)) for groups, model in ((before, one), (after, other))]
    trained(one, optimizers[0])
    state = copy.deepcopy(optimizers[1].state_dict())
    with pytest.raises(StateError) as caught:
        carry(*(track("opt", o, models={"m": m}) for o, m in zip(optimizers, (one, other), strict=True)))
    assert leaves.differences(state, optimizers[1].state_dict()) == []
    return caught.value.message


def test_groups_that_changed_are_said_by_name():
    said = failure(groups_of, lambda m: [{"params": list(m.parameters())}])
    assert "opt.groups: in the bundle 2 groups, here 1" in said
    assert "opt.groups.2.weight: in the bundle a parameter of group 1, here of group 0" in said
    said = failure(groups_of, lambda m: groups_of(m, (2,), (0,)))
    assert "opt.groups.0.bias: in the bundle a parameter of group 0, here of group 1" in said
    said = failure(
        lambda m: [{"params": list(m[0].parameters())}], lambda m: [{"params": list(m.parameters())}]
    )
    assert "missing in the bundle: opt.state.2.bias (parameter of group 0)" in said
    said = failure(
        lambda m: [{"params": list(m.parameters())}], lambda m: [{"params": list(m[2].parameters())}]
    )
    assert "only in the bundle: opt.state.0.weight (parameter of group 0)" in said
    said = failure(
        lambda m: [{"params": list(m.parameters())}], lambda m: [{"params": list(m.parameters())[::-1]}]
    )
    assert (
        "opt.groups.0: in the bundle 0.weight at position 0, here 2.bias (the parameters are reordered)"
        in said
    )


def test_a_parameter_may_be_new_where_that_is_allowed():
    one, other = net(), net()
    before, after = torch.optim.Adam(one[0].parameters()), torch.optim.Adam(other.parameters())
    trained(one, before)
    tracked = [track("opt", o, models={"m": m}) for o, m in ((before, one), (after, other))]
    Kept(tracked[0]).into(tracked[1], allow_missing=["opt.state.2.*"])
    assert after.state.keys() == set(other[0].parameters())


def test_state_for_a_parameter_of_another_shape_is_refused():
    one, other = net(), nn.Sequential(nn.Linear(4, 7), nn.Tanh(), nn.Linear(7, 2))
    before, after = torch.optim.Adam(one.parameters()), torch.optim.Adam(other.parameters())
    trained(one, before)
    with pytest.raises(
        StateError, match=r"opt\.state\.0\.weight: in the bundle for a parameter of shape 6x4, here 7x4"
    ):
        carry(track("opt", before, models={"m": one}), track("opt", after, models={"m": other}))


def test_a_parameter_of_no_tracked_model_is_named_by_its_place():
    stray = nn.Parameter(torch.ones(3))
    model = net()
    optimizer = torch.optim.SGD([{"params": model.parameters()}, {"params": [stray]}], lr=0.1)
    with pytest.raises(
        StateError, match=r"parameter 0 of group 1 of opt, of shape \[3\], belongs to no"
    ) as caught:
        track("opt", optimizer, models={"m": model})
    assert "named parameters" in caught.value.hint
    assert track("opt", optimizer, models={"m": model, "stray": stray}).read()["groups"][1]["params"] == [
        "stray"
    ]
    named = torch.optim.SGD([("scale", stray)], lr=0.1)
    assert track("opt", named, models={"m": model}).read()["groups"][0]["params"] == ["scale"]


def test_parameters_that_were_replaced_after_tracking_are_found_again():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracked = track("opt", optimizer, models={"m": model})
    model[0].weight = nn.Parameter(torch.zeros(6, 4))
    optimizer.param_groups[0]["params"][0] = model[0].weight
    optimizer.state[model[0].weight] = {"momentum_buffer": torch.ones(6, 4)}
    assert tracked.read()["groups"][0]["params"][0] == "0.weight"
    assert (
        tracked.read()["state"]["0.weight"]["momentum_buffer"]
        is optimizer.state[model[0].weight]["momentum_buffer"]
    )


class Own(torch.optim.SGD):
    """Keeps more than torch's optimizers, in a state dict of its own."""

    calls = 0
    lossy = False

    def state_dict(self):
        return super().state_dict() | {"calls": self.calls}

    def load_state_dict(self, state_dict):
        super().load_state_dict({key: state_dict[key] for key in ("state", "param_groups")})
        self.calls = 0 if self.lossy else state_dict["calls"]


def test_an_optimizer_with_a_state_dict_of_its_own_keeps_all_of_it():
    models = [net().to(torch.bfloat16) for _ in range(2)]
    one, other = (Own(m.parameters(), lr=0.1, momentum=0.9) for m in models)
    for parameter in models[0].parameters():
        one.state[parameter]["momentum_buffer"] = torch.randn(parameter.shape)
    one.calls = 7
    assert carry(*(track("o", o, models={"m": m}) for o, m in zip((one, other), models, strict=True))) == []
    assert other.calls == 7
    assert other.state[models[1][0].weight]["momentum_buffer"].dtype is torch.float32
    other.lossy = True
    with pytest.raises(StateError, match=r"o\.more\.calls read back otherwise"):
        carry(*(track("o", o, models={"m": m}) for o, m in zip((one, other), models, strict=True)))


def test_an_optimizer_whose_state_dict_raises_is_named():
    class Raising(torch.optim.SGD):
        def state_dict(self):
            raise RuntimeError("consolidate first")

    model = net()
    tracked = track("zero", Raising(model.parameters(), lr=0.1), models={"m": model})
    with pytest.raises(StateError, match=r"zero: .*RuntimeError: consolidate first"):
        tracked.read()


def test_statistics_of_sharded_parameters_stay_sharded(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        mesh = DeviceMesh("cpu", [0])
        made = []
        for _ in range(2):
            weight = nn.Parameter(distribute_tensor(torch.ones(4, 6), mesh, [Shard(0)]))
            optimizer = torch.optim.SGD([weight], lr=0.1)
            made.append((optimizer, weight))
        optimizer, weight = made[0]
        optimizer.state[weight] = {
            "whole": distribute_tensor(torch.full((4, 6), 2.0), mesh, [Shard(0)]),
            "rows": distribute_tensor(torch.arange(4.0)[:, None], mesh, [Shard(0)]),
            "columns": distribute_tensor(torch.arange(6.0)[None], mesh, [Replicate()]),
            "step": torch.tensor(3.0),
        }
        tracked = [track("o", o, models={"w": w}) for o, w in made]
        assert carry(*tracked) == []
        state = made[1][0].state[made[1][1]]
        placements = {key: entry.placements for key, entry in state.items() if isinstance(entry, DTensor)}
        assert placements == {"whole": (Shard(0),), "rows": (Shard(0),), "columns": (Replicate(),)}
    finally:
        dist.destroy_process_group()
