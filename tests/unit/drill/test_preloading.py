"""Which restarts are forked, and when a fresh process confirms them."""

from threading import Event
from types import SimpleNamespace

import pytest

from samestep.contract import Family, Outcome
from samestep.drill.preloading import FEWEST, Forks
from samestep.drill.result import Observation
from samestep.drill.scenario import Arrangement
from samestep.errors import MachineError


def scenario(family=Family.DAMAGE, arrangement=Arrangement.SNAPSHOT):
    return SimpleNamespace(name="damage/part", family=family, arrangement=arrangement)


def result(outcome, *slugs):
    findings = [SimpleNamespace(slug=slug, evidence="") for slug in slugs]
    observed = Observation(outcome=outcome, summary="as told")
    return SimpleNamespace(observed=observed, findings=findings, forked=False, crash=None)


class Runs:
    """Answers for forked and fresh restarts, and a record of what was run."""

    def __init__(self, forked, fresh=None):
        self.answers = {True: forked, False: fresh or forked}
        self.log = []

    def __call__(self, preloaded):
        self.log.append("fresh" if preloaded is None else "forked")
        return result(*self.answers[preloaded is not None])


@pytest.fixture
def forks(monkeypatch):
    monkeypatch.setattr("samestep.drill.preloading.preload", lambda *_: SimpleNamespace(close=lambda: None))
    options = SimpleNamespace(fresh=False)
    made = Forks(SimpleNamespace(options=options, stop=Event()), None)
    made.prepare([scenario()] * FEWEST)
    return made


def test_the_first_result_of_a_kind_is_confirmed_by_a_fresh_process_and_the_next_is_not(forks):
    runs = Runs((Outcome.REFUSED,))
    first, second = forks.run(scenario(), runs), forks.run(scenario(), runs)
    assert runs.log == ["forked", "fresh", "forked"]
    assert (first.forked, second.forked) == (False, True)


@pytest.mark.parametrize("other", [(Outcome.CRASHED,), (Outcome.REFUSED, "optimizer-reset")], ids=str)
def test_another_outcome_or_finding_is_another_kind(forks, other):
    forks.run(scenario(), Runs((Outcome.REFUSED,)))
    runs = Runs(other)
    forks.run(scenario(), runs)
    assert runs.log == ["forked", "fresh"]


def test_a_disagreement_is_noted_the_fresh_process_counts_and_nothing_is_forked_any_more(forks):
    found = forks.run(scenario(), Runs(forked=(Outcome.SAME,), fresh=(Outcome.DIFFERENT, "rng-not-restored")))
    assert found.observed.outcome is Outcome.DIFFERENT
    assert [record.slug for record in found.findings] == ["rng-not-restored", "fork-differs"]
    runs = Runs((Outcome.SAME,))
    forks.run(scenario(), runs)
    assert runs.log == ["fresh"]


@pytest.mark.parametrize(
    "unfit",
    [scenario(Family.CUT), scenario(Family.NOTICE), scenario(Family.DAMAGE, Arrangement.KILL)],
    ids=["cut", "notice", "killed"],
)
def test_cuts_notices_and_kills_are_restarted_in_fresh_processes(forks, unfit):
    runs = Runs((Outcome.SAME,))
    forks.run(unfit, runs)
    assert runs.log == ["fresh"]


def test_few_restarts_are_not_worth_a_preloaded_process(monkeypatch):
    monkeypatch.setattr("samestep.drill.preloading.preload", lambda *_: pytest.fail("preloaded"))
    forks = Forks(SimpleNamespace(options=SimpleNamespace(fresh=False), stop=Event()), None)
    forks.prepare([scenario()] * (FEWEST - 1))
    runs = Runs((Outcome.SAME,))
    forks.run(scenario(), runs)
    forks.close()
    assert runs.log == ["fresh"]


def test_a_drill_that_was_asked_for_fresh_processes_forks_none(monkeypatch):
    monkeypatch.setattr("samestep.drill.preloading.preload", lambda *_: pytest.fail("preloaded"))
    forks = Forks(SimpleNamespace(options=SimpleNamespace(fresh=True), stop=Event()), None)
    forks.prepare([scenario()] * FEWEST)
    runs = Runs((Outcome.SAME,))
    forks.run(scenario(), runs)
    assert runs.log == ["fresh"]


def test_a_sample_of_forks_of_a_known_kind_is_confirmed_too_and_always_the_same_one(forks):
    names = [f"crash/save-18/kill/op-{number:03}" for number in range(400)]
    forks.run(scenario(), Runs((Outcome.REFUSED,)))

    def confirmed():
        runs = {name: Runs((Outcome.REFUSED,)) for name in names}
        for name, run in runs.items():
            forks.run(SimpleNamespace(**{**vars(scenario()), "name": name}), run)
        return [name for name, run in runs.items() if "fresh" in run.log]

    first = confirmed()
    assert 2 <= len(first) <= 20
    assert confirmed() == first


def test_when_the_preloaded_process_is_gone_restarts_are_fresh(forks):
    log = []

    def run(preloaded):
        log.append("fresh" if preloaded is None else "forked")
        if preloaded is not None:
            raise MachineError("the preloaded process is gone")
        return result(Outcome.SAME)

    assert [forks.run(scenario(), run).observed.outcome for _ in range(2)] == [Outcome.SAME] * 2
    assert log == ["forked", "fresh", "fresh"]
