"""Digests and samples of tensors of every kind."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from samestep.probe import leaves, mixing  # noqa: E402
from samestep.probe.content import has_nonzero, quantity, tensor_digest  # noqa: E402

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
]


@pytest.fixture(params=["memory", "mixed"])
def algorithm(request, monkeypatch):
    """Digest through the memory with xxhash, or with torch as accelerators do."""
    if request.param == "mixed":
        monkeypatch.setattr(leaves, "xxhash_digest", None)
    return request.param


def numbers(dtype, *shape):
    return (torch.arange(torch.Size(shape).numel()) % 7).reshape(shape).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_changed_element_changes_the_digest_and_equal_content_does_not(algorithm, dtype):
    tensor = numbers(dtype, 5, 3)
    changed = tensor.clone()
    changed.view(torch.uint8)[3, 1] ^= 1
    assert tensor_digest(tensor) == tensor_digest(tensor.clone())
    assert tensor_digest(tensor) != tensor_digest(changed)
    assert quantity([("w", tensor)], 4).elements >= 15


def test_digests_depend_on_position_shape_dtype_and_name(algorithm):
    a, b = torch.tensor([1.0, 2.0, 0.0, 0.0]), torch.tensor([2.0, 1.0, 0.0, 0.0])
    seen = [
        quantity([("a", a), ("b", b)], 0),
        quantity([("a", b), ("b", a)], 0),
        quantity([("a", a), ("c", b)], 0),
        quantity([("a", a.reshape(2, 2)), ("b", b)], 0),
        quantity([("a", a.view(torch.int32)), ("b", b)], 0),
    ]
    assert len({one.digest for one in seen}) == len(seen)


def test_the_order_of_names_does_not_matter():
    pairs = [("a", torch.ones(2)), ("b", torch.zeros(3))]
    assert quantity(pairs, 8) == quantity(pairs[::-1], 8)


def test_memory_layout_does_not_matter(algorithm):
    tensor = torch.randn(2, 3, 4, 5)
    assert tensor_digest(tensor) == tensor_digest(tensor.to(memory_format=torch.channels_last))
    assert tensor_digest(tensor.t().contiguous() if tensor.ndim == 2 else tensor) == tensor_digest(tensor)
    whole = torch.randn(9)
    assert tensor_digest(whole[1:]) == tensor_digest(whole[1:].clone())
    spectrum = torch.randn(4, dtype=torch.complex64)
    assert tensor_digest(spectrum.conj()) == tensor_digest(spectrum.conj().resolve_conj())


UNUSUAL = {
    "scalar": lambda: torch.tensor(3.0),
    "empty": lambda: torch.empty(0, 4),
    "sparse": lambda: torch.eye(3).to_sparse(),
    "rows": lambda: torch.eye(3).to_sparse_csr(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8),
    "per channel": lambda: torch.quantize_per_channel(
        torch.ones(2, 2), torch.tensor([0.1, 0.2]), torch.tensor([0, 0]), 0, torch.qint8
    ),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "needs gradient": lambda: torch.nn.Parameter(torch.ones(3)) * 2,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_tensors_are_read(algorithm, kind):
    found = quantity([("t", UNUSUAL[kind]())], 8)
    assert found == quantity([("t", UNUSUAL[kind]())], 8)
    assert "unreadable" not in str([leaf.label for _, leaf in leaves.leaves_of("t", UNUSUAL[kind]())])
    assert (found.elements == 0) == (kind == "empty")


def test_tensors_without_content_survive():
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    for tensor in (torch.ones(3, device="meta"), fake, torch.nn.UninitializedParameter()):
        assert quantity([("t", tensor)], 8).elements == 0


def test_reading_works_inside_every_mode_of_torch():
    from torch._subclasses import FakeTensorMode

    tensor = torch.randn(3, 4)
    turned = tensor.t()
    expected = quantity([("t", turned)], 8)
    contexts = [torch.inference_mode(), torch.no_grad(), torch.device("meta"), FakeTensorMode()]
    for context in contexts:
        with context:
            assert quantity([("t", turned)], 8) == expected
    torch.use_deterministic_algorithms(True)
    try:
        assert quantity([("t", turned)], 8) == expected
    finally:
        torch.use_deterministic_algorithms(False)


def test_reading_changes_neither_generators_nor_gradients():
    tensor = torch.nn.Parameter(torch.randn(3, 4))
    before, version = torch.get_rng_state(), tensor._version
    quantity([("t", tensor), ("u", tensor * 2)], 8)
    assert torch.equal(before, torch.get_rng_state())
    assert tensor._version == version
    assert torch.is_grad_enabled()
    assert tensor.grad is None


def test_samples_are_evenly_spaced_and_bounded():
    big, small = torch.arange(1000.0), torch.tensor([7.0])
    found = quantity([("a", big), ("b", small)], 11)
    values = found.values()
    assert len(values) <= 11
    assert values[-1] == 7.0
    assert values[:-1] == sorted(values[:-1])
    assert len(values) >= 10
    assert len(quantity([(str(i), small) for i in range(20)], 4).values()) == 20
    assert quantity([("a", big)], 0).sample == ""
    half = quantity([("a", torch.tensor([1.5, -2.0], dtype=torch.bfloat16))], 8)
    assert half.values() == [1.5, -2.0]


def test_between_full_digests_only_the_sample_counts():
    tensor = torch.zeros(1000)
    first = quantity([("a", tensor)], 4, full=False)
    tensor[1] = 1
    assert quantity([("a", tensor)], 4, full=False) == first
    assert first.digest.startswith("sample:")


def test_numbers_and_tensors_are_both_content():
    assert quantity([("step", 3)], 4).values() == [3.0]
    assert quantity([("step", 3)], 4) != quantity([("step", 4)], 4)


def test_mixed_digests_see_every_word_and_every_swap(monkeypatch):
    monkeypatch.setattr(mixing, "CHUNK_WORDS", 1000)
    tensor = torch.randint(-(2**62), 2**62, (4000,), generator=torch.Generator().manual_seed(0))
    seen = {mixing.mixed_digest(tensor)}
    for position in (0, 1, 999, 1000, 1005, 3999):
        changed = tensor.clone()
        changed[position] += 1
        seen.add(mixing.mixed_digest(changed))
        flipped = tensor.clone()
        flipped[[position, 7]] ^= -(2**63)
        seen.add(mixing.mixed_digest(flipped))
        swapped = tensor.clone()
        swapped[position], swapped[5] = tensor[5].item(), tensor[position].item()
        seen.add(mixing.mixed_digest(swapped))
    assert len(seen) == 19
    assert len({mixing.mixed_digest(torch.zeros(size)) for size in (2, 1000, 4000)}) == 3


def test_zero_gradients_are_told_from_others():
    assert not has_nonzero(torch.zeros(3))
    assert has_nonzero(torch.tensor([0.0, float("nan")]))
    assert has_nonzero(torch.eye(2).to_sparse())
