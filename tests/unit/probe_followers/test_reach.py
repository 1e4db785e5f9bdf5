"""What the probe reads out of a training loop's frames, and that reading leaves the loop alone.

PYTEST_DONT_REWRITE: rewritten assertions call locals(), and functions that do are left alone by the probe.
"""

import random
import subprocess
import sys
import textwrap
import time
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

from samestep.probe.reach import Reacher


class Tracker:
    """Stands for a script's own object with counters."""

    def __init__(self) -> None:
        self.step = 0
        self.patience_counter = 2
        self.inner = SimpleNamespace(best=0.25, name="run of Ada Lovelace")

    @property
    def expensive(self):
        raise AssertionError("a property was run")

    def __getattr__(self, name):
        raise AssertionError(f"__getattr__({name}) was run")


class Slotted:
    __slots__ = ("count", "empty")

    def __init__(self) -> None:
        self.count = 5


def observe(reacher=None):
    return (reacher or Reacher()).observe(sys._getframe(1))


def keep(*_):
    """Names are there to be found; this is their use."""


def test_locals_and_attributes_come_out_under_readable_paths():
    step, loss, done = 7, 0.5, False
    tracker, slotted = Tracker(), Slotted()
    callbacks = [tracker]

    found = observe().values

    assert found["step"] == 7
    assert found["loss"] == 0.5
    assert found["done"] is False
    assert found["tracker.patience_counter"] == 2
    assert found["tracker.inner.best"] == 0.25
    assert found["slotted.count"] == 5
    keep(step, loss, done, callbacks, slotted)


def test_an_object_reached_twice_is_reported_once():
    tracker = Tracker()
    tracker.itself = tracker
    alias = tracker

    names = [name for name in observe().values if name.endswith("patience_counter")]

    assert names == ["tracker.patience_counter"]
    assert alias is tracker


def test_values_are_read_anew_between_walks_and_new_names_are_found_later():
    reacher, tracker = Reacher(), Tracker()
    seen = []
    for step in range(8):
        tracker.step = step * 10
        if step == 2:
            tracker.late = 99
        seen.append(observe(reacher).values)

    assert [values["tracker.step"] for values in seen] == [0, 10, 20, 30, 40, 50, 60, 70]
    assert [values["step"] for values in seen] == list(range(8))
    assert "tracker.late" not in seen[0]
    assert seen[-1]["tracker.late"] == 99


PRIVATE = {
    "now": time.time(),
    "uptime": time.monotonic() + 0.01,
    "start_time": 12.5,
    "address": id(object()),
    "elapsed": 3.0,
    "pid": 1234,
    "api_key": "abc",
    "nanoseconds": time.time_ns(),
    "text": "x" * 41,
    "token_ids": [5, 6, 7],
    "environ": {"HOME": 1},
}


@pytest.mark.parametrize("name", PRIVATE)
def test_clocks_addresses_secrets_and_data_are_left_out(name):
    holder = SimpleNamespace(**{name: PRIVATE[name]})

    found = observe().values

    assert not [path for path in found if path.startswith("holder")], found
    keep(holder)


def test_texts_leave_as_digests_only():
    phase = "warm up"

    found = observe().values

    assert found["phase"].startswith("text:")
    assert phase not in str(found)


def test_random_generators_come_out_as_digests_that_follow_their_state():
    mine, legacy, plain = np.random.default_rng(0), np.random.RandomState(1), random.Random(2)
    data = SimpleNamespace(transforms=[SimpleNamespace(rng=np.random.PCG64(3))])
    reacher = Reacher()

    first = observe(reacher).generators
    mine.random()
    second = observe(reacher).generators

    assert set(first) == {"mine", "legacy", "plain", "data.transforms[0].rng"}
    assert first["mine"] != second["mine"]
    assert {name for name in first if first[name] == second[name]} == set(first) - {"mine"}
    keep(legacy, plain, data)


def test_reading_generators_draws_nothing():
    mine, plain = np.random.default_rng(0), random.Random(2)
    reacher = Reacher()
    for _ in range(3):
        observe(reacher)

    assert mine.random() == np.random.default_rng(0).random()
    assert plain.random() == random.Random(2).random()


def test_the_global_generators_are_not_reported_again():
    source, legacy = random._inst, np.random.mtrand._rand

    assert observe().generators == {}
    keep(source, legacy)


MINE = {"batches", "stream", "numbers"}


def test_iterators_and_stateful_objects_are_reported_once():
    class Stream:
        def state_dict(self): ...

        def load_state_dict(self, state): ...

    batches, stream, numbers = (i for i in range(3)), Stream(), enumerate([1])
    reacher = Reacher()

    first, second = observe(reacher).untracked, observe(reacher).untracked

    # the frames of a test runner may hold generators of their own
    own = {item["name"]: item["type"].rpartition(".")[2] for item in first if item["name"] in MINE}
    assert own == {
        "batches": "generator",
        "stream": "Stream",
        "numbers": "enumerate",
    }
    assert second == []
    keep(stream)
    assert list(batches) == [0, 1, 2]
    assert list(numbers) == [(0, 1)]


def test_a_defaultdict_is_not_filled_by_reading_it():
    from collections import defaultdict

    counts = defaultdict(int, steps=4)
    reacher = Reacher()
    assert observe(reacher).values["counts[steps]"] == 4

    del counts["steps"]

    assert "counts[steps]" not in observe(reacher).values
    assert dict(counts) == {}


def test_nothing_is_kept_alive():
    class Big:
        pass

    def step(reacher):
        big = Big()
        big.count = 3
        found = observe(reacher)
        gone = weakref.ref(big)
        del big
        return found, gone()

    reacher = Reacher()
    for _ in range(3):
        found, kept = step(reacher)
        assert found.values["big.count"] == 3
        assert kept is None


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="locals() is a fresh dictionary since Python 3.13")
def test_a_dictionary_got_from_locals_is_left_as_it_is():
    first = 1
    mine = locals()
    reacher = Reacher()
    later = 2

    found = observe(reacher)

    assert set(mine) == {"first"}
    assert "later" not in found.values
    assert any("calls locals()" in item["type"] for item in found.untracked)
    keep(first, later)


def test_vars_with_an_argument_does_not_hide_a_function():
    settings = vars(SimpleNamespace(width=3))
    step = 4

    assert observe().values["step"] == 4
    keep(step, settings)


def test_many_values_are_cut_to_a_bound_and_counters_survive():
    many = {f"option_{i}": i for i in range(30)}
    groups = [SimpleNamespace(**many) for _ in range(30)]
    deep = SimpleNamespace(inner=SimpleNamespace(inner=SimpleNamespace(global_step=12)))

    found = observe().values

    assert len(found) == 300
    assert found["deep.inner.inner.global_step"] == 12
    keep(groups, deep)


def test_a_huge_container_is_not_walked_and_reading_stays_quick():
    huge = [SimpleNamespace(step=i) for i in range(100_000)]
    tracker = Tracker()
    reacher = Reacher()
    observe(reacher)

    took = []
    for _ in range(21):
        began = time.thread_time()
        values = observe(reacher).values
        took.append(time.thread_time() - began)

    assert not [name for name in values if name.startswith("huge[")]
    assert sorted(took)[len(took) // 2] < 0.01
    keep(huge, tracker)


def test_the_scripts_globals_are_read_even_when_the_loop_stands_in_a_function(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys
            from samestep.probe.reach import Reacher

            global_step = 3
            class Loop:
                def __init__(self):
                    self.epoch = 1
                def run(self, step):
                    return Reacher().observe(sys._getframe())
            found = Loop().run(step=9).values
            assert found == {"global_step": 3, "self.epoch": 1, "step": 9}, found
            """
        )
    )

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
