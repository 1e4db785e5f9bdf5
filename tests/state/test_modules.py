"""Models: canonical names whatever wraps them, tied weights, what does not fit, gradients."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from samestep.state import StateError, TrackedGradients, track
from samestep.state.buffers import TrackedBuffers
from samestep.state.naming import canonical_names
from state_exchange import Kept, carry


class Net(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.embed = nn.Embedding(6, width)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 6, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mask", torch.ones(3), persistent=False)

    def forward(self, tokens):
        return self.head(self.norm(self.embed(tokens)))


NAMES = [
    "embed.weight",
    "norm.weight",
    "norm.bias",
    "norm.running_mean",
    "norm.running_var",
    "norm.num_batches_tracked",
    "head.weight",
]


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    meet = tmp_path_factory.mktemp("group") / "meet"
    dist.init_process_group("gloo", init_method=f"file://{meet}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def wrapped(net, how):
    if how == "ddp":
        return nn.parallel.DistributedDataParallel(net)
    if how == "compile":
        return torch.compile(net, backend="eager")
    if how == "ddp-of-compile":
        return nn.parallel.DistributedDataParallel(torch.compile(net, backend="eager"))
    if how == "compiled-part":
        net.norm = torch.compile(net.norm, backend="eager")
    if how == "recomputed-part":
        net.norm = checkpoint_wrapper(net.norm)
    if how == "data-parallel":
        return nn.DataParallel(net)
    return net


@pytest.mark.parametrize(
    "how", ["plain", "ddp", "compile", "ddp-of-compile", "compiled-part", "recomputed-part", "data-parallel"]
)
def test_names_are_those_of_the_bare_model(group, how):
    model = wrapped(Net(), how)
    assert list(track("model", model).read()) == NAMES
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    tracked = track("optimizer", optimizer, models={"model": model})
    assert tracked.read()["groups"][0]["params"] == ["embed.weight", "norm.weight", "norm.bias"]
    assert carry(track("model", Net()), track("model", model)) == []
    assert track("model", model).kind.endswith(".Net")


def test_an_attribute_called_module_is_no_wrapper():
    class Holder(nn.Module):
        def __init__(self):
            super().__init__()
            self.module = nn.Linear(2, 2)

    assert list(track("model", Holder()).read()) == ["module.weight", "module.bias"]


def test_colliding_names_are_refused():
    model = torch.compile(nn.Linear(2, 2), backend="eager")
    with pytest.raises(StateError, match="two entries of the model are called weight"):
        canonical_names(model, {"_orig_mod.weight": 1, "weight": 2})


def test_parameters_are_the_live_ones_and_stay_the_same_objects():
    one, other = Net(), Net()
    before = list(other.parameters())
    assert track("model", one).read()["embed.weight"] is one.embed.weight
    assert carry(track("model", one), track("model", other)) == []
    assert all(a is b for a, b in zip(before, other.parameters(), strict=True))
    assert other.head.weight is other.embed.weight
    assert torch.equal(other.embed.weight, one.embed.weight)


def test_a_tied_weight_is_stored_once_with_its_other_name():
    tracked = track("model", Net())
    kept = Kept(tracked)
    assert kept.aliases == tracked.notes["aliases"] == {"head.weight": "embed.weight"}
    assert "head.weight" not in kept.tensors
    assert tracked.notes["not_persistent"] == ["mask"]


def buffers(net):
    return TrackedBuffers("model.buffers", net)


@pytest.mark.parametrize("how", ["plain", "ddp", "compile"])
def test_buffers_that_the_state_dict_leaves_out_are_kept_in_place(group, how):
    one, other = Net(), Net()
    one.mask += 2
    live = other.mask
    assert carry(buffers(wrapped(one, how)), buffers(other)) == []
    assert other.mask is live
    assert live.tolist() == [3.0, 3.0, 3.0]
    assert buffers(nn.Linear(2, 2)).names == []


def test_a_buffer_that_has_grown_or_is_none_takes_the_place_of_the_fresh_one():
    one, other = Net(), Net()
    one.mask = torch.arange(5.0)
    assert carry(buffers(one), buffers(other)) == []
    assert other.mask.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    one.mask = None
    assert carry(buffers(one), buffers(other)) == []
    assert other.mask is None
    assert carry(buffers(Net()), buffers(other)) == []
    assert other.mask.tolist() == [1.0, 1.0, 1.0]


def test_a_buffer_of_another_kind_is_named():
    other = Net()
    other.mask = other.mask.half()
    with pytest.raises(
        StateError, match=r"model\.buffers\.mask: in the bundle float32 \[3\], here float16 \[3\]"
    ):
        carry(buffers(Net()), buffers(other))


def test_a_weight_that_is_tied_only_on_one_side_is_named():
    untied = Net()
    untied.head.weight = nn.Parameter(untied.embed.weight.detach().clone())
    for one, other in ((Net(), untied), (untied, Net())):
        with pytest.raises(
            StateError, match=r"model\.head\.weight: in the bundle (the same tensor|a tensor of its own)"
        ):
            carry(track("model", one), track("model", other))


def test_everything_that_does_not_fit_is_named_in_one_error():
    present = Net(width=5)
    present.extra = nn.Linear(2, 2)
    present.norm.to(torch.float64)
    kept = Kept(track("model", nn.Sequential(Net())[0]))
    kept_more = Net()
    kept_more.gone = nn.Parameter(torch.ones(1))
    kept = Kept(track("model", kept_more))
    before = copy.deepcopy(present.state_dict())
    with pytest.raises(StateError) as caught:
        kept.into(track("model", present))
    said = caught.value.message
    assert caught.value.slug == "state-mismatch"
    for line in (
        "missing in the bundle: model.extra.weight",
        "missing in the bundle: model.extra.bias",
        "only in the bundle: model.gone",
        "model.embed.weight: in the bundle float32 [6, 4], here float32 [6, 5]",
        "model.norm.bias: in the bundle float32 [4], here float64 [5]",
    ):
        assert line in said
    assert all(torch.equal(value, before[key]) for key, value in present.state_dict().items())


def test_another_type_of_elements_is_named():
    with pytest.raises(
        StateError, match=r"model\.norm\.weight: in the bundle float32 \[4\], here bfloat16 \[4\]"
    ):
        carry(track("model", Net()), track("model", Net().to(torch.bfloat16)))


def test_entries_are_let_through_by_name_only():
    present, stored = Net(), Net()
    present.fresh = nn.Linear(2, 2)
    stored.gone = nn.Linear(2, 2)
    kept = Kept(track("model", stored))
    untouched = present.fresh.weight.detach().clone()
    with pytest.raises(StateError, match=r"only in the bundle: model\.gone\.weight"):
        kept.into(track("model", present), allow_missing=["model.fresh.*"])
    kept.into(track("model", present), allow_missing=["model.fresh.*"], allow_extra=["model.gone.*"])
    assert torch.equal(present.fresh.weight, untouched)
    assert torch.equal(present.embed.weight, stored.embed.weight)
    kept.into(track("model", present), strict=False)


def test_state_that_a_module_adds_itself_is_kept():
    class Counting(nn.Linear):
        seen = 0

        def get_extra_state(self):
            return {"seen": self.seen, "history": torch.arange(self.seen)}

        def set_extra_state(self, state):
            self.seen = state["seen"]

    one, other = nn.Sequential(Counting(2, 2)), nn.Sequential(Counting(2, 2))
    one[0].seen = 3
    assert carry(track("model", one), track("model", other)) == []
    assert other[0].seen == 3


def test_a_module_that_drops_what_it_is_given_is_found_out():
    class Forgetful(nn.Linear):
        seen = 0

        def get_extra_state(self):
            return self.seen

        def set_extra_state(self, state):
            pass

    one, other = Forgetful(2, 2), Forgetful(2, 2)
    one.seen = 3
    with pytest.raises(StateError, match=r"model\._extra_state read back otherwise") as caught:
        carry(track("model", one), track("model", other))
    assert caught.value.slug == "state-not-taken"


def test_a_trained_parameter_that_the_state_dict_leaves_out_is_refused():
    class Adapted(nn.Module):
        def __init__(self, frozen):
            super().__init__()
            self.base, self.adapter = nn.Linear(2, 2), nn.Linear(2, 2)
            self.base.requires_grad_(requires_grad=not frozen)

        def state_dict(self, **options):
            return {key: value for key, value in super().state_dict(**options).items() if "adapter" in key}

    assert list(track("model", Adapted(frozen=True)).read()) == ["adapter.weight", "adapter.bias"]
    with pytest.raises(
        StateError, match=r"model\.base\.weight is trained, and the model's state_dict leaves it out"
    ):
        track("model", Adapted(frozen=False))


def test_an_averaged_model_is_kept_with_its_count():
    net = Net()
    one = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    with torch.no_grad():
        for _ in range(3):
            net.embed.weight += 1
            one.update_parameters(net)
    other = AveragedModel(Net(), multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
    tracked = track("ema", other)
    assert (tracked.component, tracked.steady) == ("ema", False)
    assert carry(track("ema", one), tracked) == []
    assert int(other.n_averaged) == 3
    one.update_parameters(net)
    other.update_parameters(net)
    assert torch.equal(one.module.embed.weight, other.module.embed.weight)


def test_a_parameter_without_a_shape_is_refused():
    with pytest.raises(StateError, match="weight has no shape yet") as caught:
        track("model", nn.Sequential(nn.LazyLinear(3)))
    assert "forward" in caught.value.hint


def test_gradients_of_half_a_window_come_back():
    one, other = Net(), Net()
    one(torch.arange(6)).sum().backward()
    one.norm.bias.grad = None
    other.norm.bias.grad = torch.ones(4)
    tracked = [TrackedGradients("accumulation", {"model": net}) for net in (one, other)]
    assert carry(*tracked) == []
    assert other.norm.bias.grad is None
    assert torch.equal(other.embed.weight.grad, one.embed.weight.grad)


def test_a_single_parameter_can_be_tracked():
    one, other = nn.Parameter(torch.tensor([3.0])), nn.Parameter(torch.zeros(1))
    assert carry(track("scale", one), track("scale", other)) == []
    with pytest.raises(StateError, match=r"scale: in the bundle float32 \[1\], here float32 \[2\]"):
        carry(track("scale", one), track("scale", torch.zeros(2)))
