"""Every precaution of the bundle store is missed by a check when it is taken out: one by one, in real recorded work."""

from __future__ import annotations

import pytest

from crash.store_mutants import MUTANTS, task_of
from crash.store_promises import problems_of
from crash.store_states import cases_of, fast_folder, laid_out, record_work, sampled
from samestep.bundle.storage import system

pytestmark = pytest.mark.xdist_group("store-states")

SEED = 4
DIRECT = "the end of a direct write is cut off"


@pytest.fixture(scope="module")
def mutated(request, tmp_path_factory):
    """The work of all mutants that are asked for, and a folder to try the next start in."""
    asked = {
        item.callspec.params["mutant"] for item in request.session.items if item.module is request.module
    }
    with fast_folder(tmp_path_factory.mktemp("mutants")) as folder:
        tasks = [task_of(mutant) for mutant in MUTANTS if mutant in asked]
        yield folder, record_work(tasks, folder, driver="crash.store_mutants")


@pytest.mark.parametrize("mutant", MUTANTS)
def test_it_is_missed(mutant, mutated):
    folder, recorded = mutated
    if mutant == DIRECT and not writes_directly(folder):
        pytest.skip("the folder in memory refuses direct writes on this kernel")
    worked = recorded[task_of(mutant)]
    assert all(said.word != "outdated" for said in worked.said), "write it anew: the store's text has changed"
    assert told(worked) or first_broken(worked, folder), f"nothing misses: {mutant}"


def writes_directly(folder):
    with (folder / "direct").open("wb") as file:
        return system.set_direct(file.fileno(), direct=True)


def told(worked):
    """Return what the work itself found broken, or was not refused."""
    return [said for said in worked.said if said.word in {"broken", "unrefused"}]


def first_broken(worked, folder):
    """Return the problems of the first state that has any."""
    for case in in_turns(cases_of(worked)):
        with laid_out(case, folder) as disk:
            if problems := problems_of(case, disk):
                return problems
    return []


def in_turns(cases):
    """Yield the states of which most was promised, and in turn with them a sample of all."""
    promising = sorted(cases, key=lambda case: -max(case.told))
    seen = set()
    for pair in zip(promising, sampled(cases, len(cases), SEED), strict=True):
        for case in pair:
            if id(case) not in seen:
                seen.add(id(case))
                yield case
