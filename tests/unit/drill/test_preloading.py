"""Which restarts are forked, and when a fresh process confirms them."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace

import pytest

from samestep.contract import Family, Outcome
from samestep.drill.execute import FRESH
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

    def __call__(self, origins):
        begun = "begun forked" if origins.before else "fresh"
        self.log.append("forked" if origins.restart else begun)
        return result(*self.answers[origins != FRESH])


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
    [scenario(Family.CUT), scenario(Family.NOTICE), scenario(Family.NOTICE, Arrangement.NOTICE)],
    ids=["cut", "notice", "noticed"],
)
def test_cuts_and_notices_are_restarted_in_fresh_processes(forks, unfit):
    runs = Runs((Outcome.SAME,))
    forks.run(unfit, runs)
    assert runs.log == ["fresh"]


def test_what_a_failing_disk_has_left_is_restarted_like_any_other_disk_state(forks):
    runs = Runs((Outcome.SAME,))
    for _ in range(2):
        forks.run(scenario(Family.CRASH, Arrangement.FAULT), runs)
    assert runs.log == ["forked", "fresh", "forked"]


CUT_RUNS = [Arrangement.KILL, Arrangement.TWICE]


@pytest.mark.parametrize("arrangement", CUT_RUNS, ids=str)
def test_a_run_that_is_only_there_to_be_cut_is_forked_and_what_restarts_is_fresh(forks, arrangement):
    runs = Runs((Outcome.SAME,))
    assert not forks.run(scenario(Family.CUT, arrangement), runs).forked
    assert runs.log == ["begun forked"]


@pytest.mark.parametrize("arrangement", CUT_RUNS, ids=str)
@pytest.mark.parametrize(
    "forked", [(Outcome.DIFFERENT, "rng-not-restored"), (Outcome.SAME, "noisy-control")], ids=str
)
def test_one_that_does_not_hold_after_a_forked_beginning_is_done_afresh(forks, arrangement, forked):
    runs = Runs(forked, fresh=(Outcome.SAME,))
    assert forks.run(scenario(Family.CUT, arrangement), runs).observed.outcome is Outcome.SAME
    assert runs.log == ["begun forked", "fresh"]


@pytest.mark.parametrize("arrangement", CUT_RUNS, ids=str)
def test_a_beginning_that_cannot_be_forked_is_fresh(forks, arrangement):
    runs = Runs((Outcome.SAME,))

    def gone(origins):
        if origins != FRESH:
            raise ForkError("gone")
        return runs(origins)

    forks.run(scenario(Family.CUT, arrangement), gone)
    forks.run(scenario(Family.CUT, arrangement), gone)
    assert runs.log == ["fresh", "fresh"]


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


@pytest.mark.parametrize("confirmed", [True, False], ids=["confirmed", "contradicted"])
def test_nobody_waits_until_a_kind_is_confirmed_and_what_is_contradicted_then_is_taken_back(forks, confirmed):
    second_is_there = Event()
    shown = Outcome.SAME if confirmed else Outcome.DIFFERENT

    def first(origins):
        if origins == FRESH:
            assert second_is_there.wait(10)
        return result(Outcome.SAME if origins.restart else shown)

    with ThreadPoolExecutor(1) as pool:
        confirming = pool.submit(forks.run, scenario(), first)
        while not forks._beliefs:
            time.sleep(0.001)
        second = forks.run(scenario(), Runs((Outcome.SAME,), fresh=(shown,)))
        second_is_there.set()
        assert confirming.result(10).observed.outcome is shown
    assert second.observed.outcome is shown
    assert second.forked is confirmed


def test_results_of_other_kinds_stay_believed(forks):
    forks.run(scenario(), Runs((Outcome.REFUSED,)))
    other = forks.run(scenario(), Runs((Outcome.REFUSED,)))
    believed(forks, 1)
    forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
    assert other.forked


def test_what_cannot_be_restarted_afresh_is_inconclusive_and_says_why(forks):
    forks.run(scenario(), Runs((Outcome.SAME,)))

    def run(origins):
        if origins == FRESH:
            raise MachineError("no room left")
        return result(Outcome.SAME)

    taken_back = forks.run(scenario(), run)
    found = forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
    assert found.observed.outcome is Outcome.DIFFERENT
    assert (taken_back.observed.outcome, taken_back.observed.summary) == (Outcome.INCONCLUSIVE, DOUBTED)
    assert not taken_back.holds


def test_a_drill_that_is_interrupted_meanwhile_keeps_nothing_of_what_was_taken_back(forks, stop):
    forks.run(scenario(), Runs((Outcome.SAME,)))

    def run(origins):
        if origins == FRESH:
            stop.set()  # and everything is killed
        return result(Outcome.SAME if origins.restart else Outcome.CRASHED)

    taken_back = forks.run(scenario(), run)
    forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
    assert taken_back.observed.outcome is Outcome.INCONCLUSIVE


@pytest.mark.parametrize("before", ["confirmed before", "never confirmed"])
@pytest.mark.parametrize("how", ["killed", "never begun"])
def test_a_confirmation_that_ends_with_the_drill_contradicts_nothing(forks, stop, before, how):
    if before == "confirmed before":
        forks.run(scenario(), Runs((Outcome.SAME,)))
    ours = SimpleNamespace(**{**vars(scenario()), "name": SAMPLED})
    others = []

    def run(origins):
        if origins != FRESH:
            return result(Outcome.SAME)
        others.append(forks.run(scenario(), Runs((Outcome.SAME,))))
        stop.set()  # and everything is killed
        if how == "never begun":
            raise MachineError("the drill is being ended")
        return result(Outcome.CRASHED)

    with contextlib.suppress(MachineError):
        forks.run(ours, run)
    assert [other.observed.outcome for other in others] == [Outcome.SAME]
    assert forks.unconfirmed() == (set() if before == "confirmed before" else {others[0].name})


def test_a_fork_that_ends_after_its_kind_fell_into_doubt_is_not_believed(forks):
    believed(forks, 1)
    runs = Wrong()

    def run(origins):
        if origins != FRESH:  # meanwhile, in another thread
            forks.run(SimpleNamespace(**{**vars(scenario()), "name": SAMPLED}), Wrong())
        return runs(origins)

    assert forks.run(scenario(), run).observed.outcome is Outcome.DIFFERENT
    assert runs.log == ["forked", "fresh"]


def test_when_the_preloaded_process_is_gone_restarts_are_fresh(forks):
    log = []

    def run(origins):
        log.append("forked" if origins.restart else "fresh")
        if origins != FRESH:
            raise ForkError("the preloaded process is gone")
        return result(Outcome.SAME)

    assert [forks.run(scenario(), run).observed.outcome for _ in range(2)] == [Outcome.SAME] * 2
    assert log == ["forked", "fresh", "fresh"]
