"""No damage to a file makes reading it fail with anything but a named problem."""

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from samestep.checkpoints import inspect_path
from samestep.checkpoints.containers import read_file
from samestep.errors import CheckpointError


@pytest.fixture(scope="session")
def samples(tmp_path_factory, request):
    forge = request.getfixturevalue("session_forge")
    folder = tmp_path_factory.mktemp("samples")
    value = forge.checkpoint(6)
    return {
        "c.pt": forge.torch_file(folder / "c.pt", value).read_bytes(),
        "p.pkl": forge.pickled({"step": 6, "rng": (3, (1, 2), None), "names": ["a"] * 9}, protocol=4),
        "m.safetensors": forge.safetensors(folder / "m.safetensors", "a.weight", "b.bias").read_bytes(),
        "t.json": b'{"global_step": 6, "log_history": [1, 2, {"loss": 0.5}]}',
    }


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_flipped_cut_and_inserted_bytes_are_survived(samples, tmp_path, data):
    name = data.draw(st.sampled_from(sorted(samples)))
    content = bytearray(samples[name])
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(content)))
        removed = data.draw(st.integers(0, 8))
        content[position : position + removed] = data.draw(st.binary(max_size=8))
    path = tmp_path / name
    path.write_bytes(content)
    facts = read_file(path)
    assert facts.size_bytes == len(content)
    with contextlib.suppress(CheckpointError):
        assert len(inspect_path(path).inspections) == 1


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=300))
def test_any_bytes_at_all_are_survived_as_a_pickle(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "x.pkl"
    path.write_bytes(b"\x80\x04" + content)
    assert read_file(path).size_bytes == len(content) + 2
