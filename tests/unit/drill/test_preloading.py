"""Which restarts are forked, and when a fresh process confirms them."""

from threading import Event
from types import SimpleNamespace

import pytest

from samestep.contract import Family, Outcome
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.preloading import DOUBTED, FEWEST, Forks, _is_sampled
from samestep.drill.result import Expectation, Observation, ScenarioResult
from samestep.drill.scenario import Arrangement
from samestep.errors import ForkError, MachineError


def scenario(family=Family.DAMAGE, arrangement=Arrangement.SNAPSHOT):
    return SimpleNamespace(name="damage/part", family=family, arrangement=arrangement)


def result(outcome, *slugs):
    return ScenarioResult(
        name="damage/part",
        family=Family.DAMAGE,
        title="a part is damaged",
        expected=Expectation(outcomes=[Outcome.SAME]),
        observed=Observation(outcome=outcome, summary="as told"),
        holds=outcome is Outcome.SAME,
        findings=[finding(slug, "") for slug in slugs],
    )


class Runs:
    """Answers for forked and fresh restarts, and a record of what was run."""

    def __init__(self, forked, fresh=None):
        self.answers = {True: forked, False: fresh or forked}
        self.log = []

    def __call__(self, preloaded):
        self.log.append("fresh" if preloaded is None else "forked")
        return result(*self.answers[preloaded is not None])


@pytest.fixture
def stop():
    return Event()


@pytest.fixture
def forks(monkeypatch, stop):
    monkeypatch.setattr("samestep.drill.preloading.preload", lambda *_: SimpleNamespace(close=lambda: None))
    options = SimpleNamespace(fresh=False)
    made = Forks(SimpleNamespace(options=options, stop=stop), None, print)
    made.prepare(FEWEST)
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


def test_a_preloaded_process_that_was_begun_early_is_not_started_again(monkeypatch):
    started = []
    monkeypatch.setattr(
        "samestep.drill.preloading.preload",
        lambda *_: started.append(1) or SimpleNamespace(close=lambda: None),
    )
    forks = Forks(SimpleNamespace(options=SimpleNamespace(fresh=False), stop=Event()), None, print)
    forks.prepare(FEWEST)
    forks.prepare(FEWEST + 1)
    forks.close()
    assert started == [1]


def test_few_restarts_are_not_worth_a_preloaded_process(monkeypatch):
    monkeypatch.setattr("samestep.drill.preloading.preload", lambda *_: pytest.fail("preloaded"))
    forks = Forks(SimpleNamespace(options=SimpleNamespace(fresh=False), stop=Event()), None, print)
    forks.prepare(FEWEST - 1)
    runs = Runs((Outcome.SAME,))
    forks.run(scenario(), runs)
    forks.close()
    assert runs.log == ["fresh"]


def test_a_drill_that_was_asked_for_fresh_processes_forks_none(monkeypatch):
    monkeypatch.setattr("samestep.drill.preloading.preload", lambda *_: pytest.fail("preloaded"))
    forks = Forks(SimpleNamespace(options=SimpleNamespace(fresh=True), stop=Event()), None, print)
    forks.prepare(FEWEST)
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


SAMPLED = next(
    name for name in map("damage/{}".format, range(1000)) if _is_sampled(SimpleNamespace(name=name))
)


class Wrong(Runs):
    """Forks of a process in which everything seems the same, and what really happens."""

    def __init__(self, fresh=(Outcome.DIFFERENT, "rng-not-restored")):
        super().__init__(forked=(Outcome.SAME,), fresh=fresh)


def believed(forks, count):
    """Results of one kind that count although they are forks', and what restarts them."""
    forks.run(scenario(), Runs((Outcome.SAME,)))
    runs = [Wrong() for _ in range(count)]
    return [forks.run(scenario(), run) for run in runs], runs


def test_when_the_sample_disagrees_what_was_believed_of_its_kind_is_restarted_afresh(forks):
    results, runs = believed(forks, 3)
    assert all(item.forked and item.holds for item in results)
    results[0].replay = "samestep drill --replay damage/part"
    last = forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
    assert [run.log for run in runs] == [["forked", "fresh"]] * 3
    assert {(item.observed.outcome, item.forked, item.holds) for item in results} == {
        (Outcome.DIFFERENT, False, False)
    }
    assert [[found.slug for found in item.findings] for item in results] == [["rng-not-restored"]] * 3
    assert results[0].replay == "samestep drill --replay damage/part"
    (differs,) = [found for found in last.findings if found.slug == "fork-differs"]
    assert differs.details == ["earlier results of this kind that are restarted in fresh processes: 3"]


def test_results_of_other_kinds_stay_believed(forks):
    forks.run(scenario(), Runs((Outcome.REFUSED,)))
    other = forks.run(scenario(), Runs((Outcome.REFUSED,)))
    believed(forks, 1)
    forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
    assert other.forked


def test_what_cannot_be_restarted_afresh_is_inconclusive_and_says_why(forks):
    forks.run(scenario(), Runs((Outcome.SAME,)))

    def run(preloaded):
        if preloaded is None:
            raise MachineError("no room left")
        return result(Outcome.SAME)

    taken_back = forks.run(scenario(), run)
    found = forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
    assert found.observed.outcome is Outcome.DIFFERENT
    assert (taken_back.observed.outcome, taken_back.observed.summary) == (Outcome.INCONCLUSIVE, DOUBTED)
    assert not taken_back.holds


def test_a_drill_that_is_interrupted_meanwhile_keeps_nothing_of_what_was_taken_back(forks, stop):
    forks.run(scenario(), Runs((Outcome.SAME,)))

    def run(preloaded):
        if preloaded is None:
            stop.set()  # and everything is killed
        return result(Outcome.SAME if preloaded else Outcome.CRASHED)

    taken_back = forks.run(scenario(), run)
    forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
    assert taken_back.observed.outcome is Outcome.INCONCLUSIVE


def test_a_fork_that_ends_after_its_kind_fell_into_doubt_is_not_believed(forks):
    believed(forks, 1)
    runs = Wrong()

    def run(preloaded):
        if preloaded is not None:  # meanwhile, in another thread
            forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
        return runs(preloaded)

    assert forks.run(scenario(), run).observed.outcome is Outcome.DIFFERENT
    assert runs.log == ["forked", "fresh"]


def test_when_the_preloaded_process_is_gone_restarts_are_fresh(forks):
    log = []

    def run(preloaded):
        log.append("fresh" if preloaded is None else "forked")
        if preloaded is not None:
            raise ForkError("the preloaded process is gone")
        return result(Outcome.SAME)

    assert [forks.run(scenario(), run).observed.outcome for _ in range(2)] == [Outcome.SAME] * 2
    assert log == ["forked", "fresh", "fresh"]
