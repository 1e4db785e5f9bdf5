"""What a snapshot wrote, a restore gives back bit for bit, out of parts that other programs can read."""

from __future__ import annotations

import json
import math

import pytest
import safetensors.torch
import torch

from plain_trees import TrackedTree, zeroed
from samestep.bundle import canonical
from samestep.state import Capture, StateError, leaves, restore, track
from state_saving import first_attempt, save

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint64,
    torch.uint32,
    torch.uint16,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]


def bits(dtype, *shape):
    """Return a tensor of any bits that the type has."""
    count = math.prod(shape) * dtype.itemsize
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (count,), dtype=torch.uint8)
    return raw.view(dtype).reshape(shape)


def saved(folder, *tracked):
    attempt = first_attempt(folder)
    return save(attempt, Capture(tracked).take()), attempt.chain.storage


def part(storage, bundle, path):
    found = next(one for one in bundle.manifest.parts if one.path == path)
    return storage.root / bundle.key_of(found)


@pytest.mark.parametrize("in_place", [False, True], ids=["fresh", "live"])
def test_every_type_and_shape_survives_bit_for_bit(tmp_path, in_place):
    torch.manual_seed(1)
    tree = {str(dtype): shapes_of(dtype) for dtype in DTYPES}
    bundle, storage = saved(tmp_path, TrackedTree("things", tree))
    again = TrackedTree("things", zeroed(tree) if in_place else {}, in_place=in_place)
    restore([again], bundle, storage)
    assert leaves.differences(again.tree, tree) == []


def shapes_of(dtype):
    return {
        "grid": bits(dtype, 5, 3),
        "scalar": bits(dtype),
        "empty": bits(dtype, 0, 4),
        "turned": bits(dtype, 4, 6).t(),
        "every second": bits(dtype, 12)[::2],
        "images": bits(dtype, 2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
    }


def test_a_tensor_that_is_spread_out_over_less_memory_survives(tmp_path):
    tree = {"spread out": torch.randn(3, 1).expand(3, 4)}
    bundle, storage = saved(tmp_path, TrackedTree("things", tree))
    again = TrackedTree("things", {})
    restore([again], bundle, storage)
    assert leaves.differences(again.tree, tree) == []


def test_lazily_conjugated_and_negated_tensors_are_stored_as_they_read(tmp_path):
    numbers = torch.randn(4, dtype=torch.complex64)
    tree = {"conjugate": numbers.conj(), "imaginary": numbers.conj().imag}
    bundle, storage = saved(tmp_path, TrackedTree("things", tree))
    again = TrackedTree("things", {})
    restore([again], bundle, storage)
    assert again.tree["conjugate"].tolist() == tree["conjugate"].tolist()
    assert again.tree["imaginary"].tolist() == tree["imaginary"].tolist()


def test_everything_that_is_no_tensor_survives_too(tmp_path):
    tree = {
        "b": (1, 1.0, True, None, "x", b"\0\xff", [2**70, -0.0, math.inf]),
        "a": {3: "int key", "3": "text key"},
    }
    bundle, storage = saved(tmp_path, TrackedTree("things", tree))
    again = TrackedTree("things", {})
    restore([again], bundle, storage)
    assert repr(again.tree) == repr(tree)


def test_weights_open_with_safetensors_under_the_names_of_the_model(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    bundle, storage = saved(tmp_path, track("net", net))
    opened = safetensors.torch.load_file(part(storage, bundle, "model.safetensors"))
    assert opened.keys() == net.state_dict().keys()
    assert all(torch.equal(opened[name], tensor) for name, tensor in net.state_dict().items())


def test_state_json_is_canonical_and_stays_so_when_most_of_it_is_remembered(tmp_path):
    tree = {"many": {f"{n:03}": n for n in range(200)}, "changing": 1, "w": torch.ones(3), "none": [math.nan]}
    source = TrackedTree("things", tree)
    attempt = first_attempt(tmp_path)
    capture = Capture([source])
    for step, value in enumerate([1, 1.0, True, "1"]):
        tree["changing"] = tree["many"]["007"] = value
        bundle = save(attempt, capture.take(), step=step)
        text = part(attempt.chain.storage, bundle, "state.json").read_bytes()
        assert canonical.decode(text, what="state.json")["schema"] == "samestep.state/1"
        again = TrackedTree("things", {})
        restore([again], bundle, attempt.chain.storage)
        assert repr(again.tree["changing"]) == repr(again.tree["many"]["007"]) == repr(value)


def test_two_models_get_a_file_each(tmp_path):
    bundle, _ = saved(tmp_path, track("critic", torch.nn.Linear(2, 2)), track("actor", torch.nn.Linear(2, 2)))
    assert {one.path for one in bundle.manifest.parts} >= {"model.safetensors", "actor.safetensors"}


def test_frozen_weights_lie_apart_and_transformers_finds_both(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(600, 600), torch.nn.Linear(600, 2))
    net[0].requires_grad_(False)
    bundle, storage = saved(tmp_path, track("net", net))
    index = json.loads(part(storage, bundle, "model.safetensors.index.json").read_bytes())
    files = index["weight_map"]
    assert files.keys() == net.state_dict().keys()
    assert files["0.weight"] != files["1.weight"]
    for name, file in files.items():
        assert torch.equal(
            safetensors.torch.load_file(part(storage, bundle, file))[name], net.state_dict()[name]
        )


def test_a_type_that_cannot_be_stored_is_refused_by_name():
    sparse = TrackedTree("things", {"a": [torch.eye(2).to_sparse()]})
    with pytest.raises(StateError, match=r"things\.a\.0"):
        Capture([sparse]).take()


def test_a_restore_reads_little_more_than_it_needs(tmp_path):
    tree = {"w": torch.randn(3000, 1000)}
    bundle, storage = saved(tmp_path, TrackedTree("things", tree))
    done = restore([TrackedTree("things", {})], bundle, storage)
    assert done.needed_bytes == 12_000_000
    assert done.read_bytes < 1.01 * done.needed_bytes
    assert done.held_bytes == 0


@pytest.mark.parametrize("frozen", [False, True], ids=["one file", "frozen weights apart"])
def test_transformers_opens_the_folder_of_a_bundle_as_it_is(tmp_path, frozen):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    shape = {"n_layer": 1, "n_head": 2, "n_embd": 64, "vocab_size": 5000, "n_positions": 16}
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, **ends))
    model.transformer.wte.requires_grad_(not frozen)
    bundle, storage = saved(tmp_path, track("net", model))
    opened = transformers.AutoModelForCausalLM.from_pretrained(storage.root / "bundles" / bundle.id)
    assert type(opened) is type(model)
    assert ("model.safetensors.index.json" in {one.path for one in bundle.manifest.parts}) == frozen
    assert opened.state_dict().keys() == model.state_dict().keys()
    assert all(torch.equal(opened.state_dict()[name], tensor) for name, tensor in model.state_dict().items())
