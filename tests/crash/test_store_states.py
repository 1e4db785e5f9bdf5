"""Whatever interrupts work on a bundle store, the next start finds what was promised and goes on from it.

Real work is recorded; every disk state that an interruption can leave, by all persistence models, is laid out, and the
next start is tried on it: see ``store_promises``.
"""

from __future__ import annotations

import os
import time

import pytest

import crash.store_trouble  # noqa: F401 - adds its scenarios
from crash.store_promises import PUT_BACK, problems_of
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
from crash.store_work import SCENARIOS

pytestmark = pytest.mark.xdist_group("store-states")

SEED = int(os.environ.get("STORE_STATES_SEED", "20261129"))
CALLS = 240  # system calls of the rotation that change something
QUICK, QUICK_LARGE = 1050, 25


class Bench:
    """Recordings, and the states that they can be interrupted in."""

    def __init__(self, folder, *, kills, again):
        self.folder, self.restored = folder, 0
        (folder / "first").mkdir()
        (folder / "second").mkdir()
        names = [*SCENARIOS, *(f"killed@{at}" for at in kills)]
        self.worked = record_work(names, folder / "first")
        self.first = different(case for worked in self.worked.values() for case in cases_of(worked))
        self.cases = different([*self.first, *self._second(again)])

    def _second(self, count):
        """Record what the next start does on some of the states, and take that apart."""
        cut = [
            case for case in self.first if not case.second and case.worked.scenario not in {"large", "damage"}
        ]
        bases = {
            f"{case.worked.scenario}@again-{at}": case for at, case in enumerate(sampled(cut, count, SEED))
        }
        recorded = record_work(list(bases), self.folder / "second", bases=bases)
        for worked in recorded.values():
            yield from cases_of(worked)

    def broken(self, cases, *, thorough=lambda _: False):
        """Try the next start on every case; return what is not as it was promised."""
        found = []
        for number, case in enumerate(cases):
            with laid_out(case, self.folder) as disk:
                problems = problems_of(case, disk, thorough=thorough(number))
                self.restored += (disk / PUT_BACK).is_dir()
            if problems:
                found.append(f"{case.name} ({', '.join(case.kinds)}): {problems[:3]}")
                print(found[-1])
        return found


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    with fast_folder(tmp_path_factory.mktemp("states")) as folder:
        yield Bench(folder, kills=range(7, CALLS, 60), again=6)


def test_a_sample_of_a_thousand_states_over_all_models(bench):
    begun = time.monotonic()
    large = [case for case in bench.cases if case.worked.scenario == "large"]
    rest = [case for case in bench.cases if case.worked.scenario != "large"]
    chosen = [*sampled(rest, QUICK, SEED), *sampled(large, QUICK_LARGE, SEED)]
    found = bench.broken(chosen, thorough=lambda number: number % 10 == 0)
    told(chosen, len(bench.cases), bench.restored, time.monotonic() - begun, SEED)
    assert found == []
    assert len(chosen) >= 1000
    assert all(allowed for _, allowed in counted(chosen).values())
    assert changed_contents(bench.folder) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_that_has_to_be_refused_is_done(bench, name):
    worked = bench.worked[name]
    assert [said for said in worked.said if said.word in {"broken", "unrefused"}] == []
    assert any(said.word in {"registered", "created"} for said in worked.said)


def test_both_kinds_of_second_interruption_are_among_the_states(bench):
    second = {case.worked.name.partition("@")[2].partition("-")[0] for case in bench.cases if case.second}
    assert "again" in second
    assert any(name.isdigit() for name in second)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_ten_thousand_states_of_which_more_than_a_thousand_are_restored(tmp_path):
    begun = time.monotonic()
    with fast_folder(tmp_path) as folder:
        bench = Bench(folder, kills=range(0, CALLS, 8), again=36)
        found = bench.broken(bench.cases, thorough=lambda number: number % 6 == 0)
        row = told(bench.cases, len(bench.cases), bench.restored, time.monotonic() - begun, SEED)
        assert changed_contents(folder) == []
    assert found == []
    assert len(bench.cases) >= 10_000
    assert bench.restored >= 1000
    assert all(allowed for _, allowed in counted(bench.cases).values())
    keep_row("store", row)
