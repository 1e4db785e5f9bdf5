"""Pickles are understood without being unpickled."""

import io
import os
import pickle
import random

import pytest

from samestep.checkpoints.pickles import MAX_READ_BYTES, scan_pickle
from samestep.checkpoints.trust import Trust
from samestep.checkpoints.values import Built, count_tensors


def scan(data):
    return scan_pickle(io.BytesIO(data), len(data))


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (os.system, (f"touch {self.target}",))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_values_are_read_as_they_are_in_every_protocol(protocol):
    value = {
        "step": 12,
        "lr": 0.5,
        "name": "run",
        "flags": [True, False, None],
        "big": 1 << 80,
        3: (1, (2,), b"x"),
    }
    found = scan(pickle.dumps(value, protocol=protocol))
    assert found.problem == ""
    if protocol < 3:  # bytes are made by a call to a codec in old protocols
        assert found.value[3][:2] == (1, (2,))
        del found.value[3], value[3]
    assert found.value == value


def test_shared_and_cyclic_values_come_back_shared_and_cyclic():
    inner = ["x"]
    value = {"a": inner, "b": inner}
    value["self"] = value
    found = scan(pickle.dumps(value)).value
    assert found["a"] is found["b"]
    assert found["self"] is found


def test_a_command_in_a_pickle_is_named_and_not_run(tmp_path):
    target = tmp_path / "created"
    found = scan(pickle.dumps({"model": Bomb(target)}))
    assert found.names(Trust.DANGEROUS) == ["posix.system"]
    assert isinstance(found.value["model"], Built)
    assert found.value["model"].arguments == (f"touch {target}",)
    assert not target.exists()


def test_a_command_hidden_in_an_embedded_torch_file_is_found(forge, tmp_path):
    target = tmp_path / "created"
    inner = b"".join(pickle.dumps(part) for part in (0x1950A86A20F9469CFC6C, 1001, {}, Bomb(target), []))
    outer = forge.pickled(forge.Made(forge.Name("torch.storage", "_load_from_bytes"), inner), protocol=4)
    assert scan(outer).names(Trust.DANGEROUS) == ["posix.system"]
    padded = inner + b"\0" * MAX_READ_BYTES
    outer = forge.pickled(forge.Made(forge.Name("torch.storage", "_load_from_bytes"), padded), protocol=4)
    assert scan(outer).names(Trust.DANGEROUS) == ["posix.system"]
    assert not target.exists()


def test_names_put_together_while_loading_are_reported():
    data = b"\x80\x04\x8c\x02os\x94N\x93."  # STACK_GLOBAL over a value that is not a string
    assert scan(data).oddities == ["a name put together while loading (STACK_GLOBAL)"]


def test_extension_codes_are_reported():
    assert scan(b"\x80\x02\x82\x01.").oddities == ["a name from the registry of extensions (EXT 1)"]


def test_tensors_are_counted_and_their_packages_trusted(forge):
    found = scan(forge.pickled({"model": forge.weights(), "optimizer": forge.optimizer()}))
    assert count_tensors(found.value) == 5
    assert found.names(Trust.DANGEROUS) == found.names(Trust.FOREIGN) == []


def test_the_python_generator_state_is_plain_data():
    found = scan(pickle.dumps(random.getstate()))
    assert found.value == random.getstate()


def test_long_values_are_stepped_over_and_not_read():
    class Counting(io.BytesIO):
        longest = 0

        def read(self, size=-1):
            Counting.longest = max(Counting.longest, size)
            return super().read(size)

    data = pickle.dumps({"blob": b"\1" * 10_000_000, "step": 3}, protocol=4)
    found = scan_pickle(Counting(data), len(data))
    assert found.value["step"] == 3
    assert len(found.value["blob"]) == 10_000_000
    assert Counting.longest <= MAX_READ_BYTES


@pytest.mark.parametrize("keep", [0, 1, 5, 40, 200])
def test_a_cut_off_pickle_is_a_problem_and_not_an_exception(keep):
    data = pickle.dumps({str(number): number for number in range(100)})
    assert scan(data[:keep]).problem.startswith("not a whole pickle")


def test_deeply_nested_keys_do_not_overflow_the_interpreter():
    data = b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s."
    found = scan(data)
    assert found.problem == ""
    assert len(found.value) == 1
