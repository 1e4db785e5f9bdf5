"""Whatever interrupts a training with the run API, the next start goes on from what was said to be saved, exactly.

Real trainings are recorded, with every way to save and with rotation; every disk state that an interruption can leave
is laid out. On each the next start of a store is tried, see ``store_promises``: bundles must hold, byte for byte, what
an undisturbed training in another process has saved at their step. On some the training itself is started again, and
has to come to the same numbers.
"""

from __future__ import annotations

import os
import time

import pytest

from crash import store_work
from crash.run_work import KILLED, KINDS, STEPS, Trained, contents, trained, width
from crash.store_promises import problems_of
from crash.store_states import (
    cases_of,
    changed_contents,
    counted,
    different,
    fast_folder,
    keep_row,
    laid_out,
    record_work,
    sampled,
    told,
)
from crash.store_work import STORE

pytestmark = pytest.mark.xdist_group("store-states")

SEED = int(os.environ.get("STORE_STATES_SEED", "20261130"))
DRIVER = "crash.run_work"
CALLS = 320  # system calls of a training that change something
QUICK, QUICK_RESTORED = 170, 6
RESTORED = 120


class Bench:
    """Recorded trainings, the states that they can be interrupted in, and the controls that they are compared with."""

    def __init__(self, folder, *, kills, again):
        self.folder, self.restored = folder, 0
        self.controls = {}
        names = [*KINDS, *(f"{KILLED}@{at}" for at in kills)]
        for scenario in (*KINDS, KILLED):
            features = width(scenario)
            place = folder / f"control-{features}"
            if features not in self.controls:
                self.controls[features] = trained(place, False, features=features, keep=None)
            store_work.MADE[scenario] = contents(place)
        self.worked = record_work(names, self._place("first"), driver=DRIVER)
        first = different(case for worked in self.worked.values() for case in cases_of(worked))
        cut = sampled([case for case in first if not case.second], again, SEED)
        bases = {f"{case.worked.scenario}@again-{at}": case for at, case in enumerate(cut)}
        recorded = self._recorded_on(bases) if bases else {}
        second = [case for worked in recorded.values() for case in cases_of(worked)]
        self.cases = different([*first, *second])

    def _recorded_on(self, bases):
        """Record trainings that go on from disks that an interruption has left."""
        return record_work(list(bases), self._place("second"), bases=bases, driver=DRIVER)

    def _place(self, name):
        place = self.folder / name
        place.mkdir()
        return place

    def broken(self, cases, *, trained_again):
        """Try the next start on every case, and train again on some; return what is not as it was promised."""
        found = []
        for case in cases:
            with laid_out(case, self.folder) as disk:
                problems = problems_of(case, disk)
            found += [f"{case.name} ({', '.join(case.kinds)}): {problems[:3]}"] if problems else []
        for case in sampled(cases, trained_again, SEED):
            found += [
                f"{case.name} ({', '.join(case.kinds)}): {text}" for text in self._trained_otherwise(case)
            ]
        print(*found, sep="\n")
        return found

    def _trained_otherwise(self, case):
        """Let the training go on from a case; yield what differs from the control, or was said to be there."""
        said = [*case.worked.before, *case.worked.said[: max(case.told)]]
        saved = max((int(one.details[2]) for one in said if one.word == "committed"), default=0)
        features = width(case.worked.scenario)
        control = self.controls[features]
        with laid_out(case, self.folder) as disk:
            made = trained(disk / STORE, features=features)
        self.restored += 1
        if not isinstance(made, Trained):
            yield f"stuck: {made}"
            return
        if made.resumed < saved:
            yield f"lost: it went on from step {made.resumed}, and step {saved} was said to be saved"
        expected = {step: loss for step, loss in control.losses.items() if step > made.resumed}
        if made.losses != expected or (expected and made.digest != control.digest):
            yield f"another training: {made.losses} after step {made.resumed}"


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with fast_folder(tmp_path_factory.mktemp("run-states")) as folder:
        yield Bench(folder, kills=(CALLS // 2,), again=0)


def test_a_sample_of_states_over_all_models_loses_nothing_and_goes_on_exactly(bench):
    begun = time.monotonic()
    chosen = sampled(bench.cases, QUICK, SEED)
    found = bench.broken(chosen, trained_again=QUICK_RESTORED)
    told(chosen, len(bench.cases), bench.restored, time.monotonic() - begun, SEED)
    assert found == []
    assert all(allowed for _, allowed in counted(chosen).values())
    assert changed_contents(bench.folder) == []


@pytest.mark.parametrize("name", KINDS)
def test_every_save_of_a_training_was_said_to_be_saved_once_it_was(bench, name):
    steps = [int(said.details[2]) for said in bench.worked[name].said if said.word == "committed"]
    assert steps == list(range(1, STEPS + 1))


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_all_states_lose_nothing_and_go_on_exactly(tmp_path):
    begun = time.monotonic()
    with fast_folder(tmp_path) as folder:
        bench = Bench(folder, kills=range(0, CALLS, 80), again=5)
        found = bench.broken(bench.cases, trained_again=RESTORED)
        row = told(bench.cases, len(bench.cases), bench.restored, time.monotonic() - begun, SEED)
        assert changed_contents(folder) == []
    assert found == []
    assert bench.restored == RESTORED
    assert all(allowed for _, allowed in counted(bench.cases).values())
    keep_row("run", row)
