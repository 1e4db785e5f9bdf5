"""Exit codes, notices, silencing, the watching proof."""

import pytest

from samestep.contract import Component, Family, Outcome, Severity
from samestep.drill.attempt import NoticeRecord
from samestep.drill.command import shell_word
from samestep.drill.cutting import notice_findings
from samestep.drill.execute import silence
from samestep.drill.judging.judgement import Case, Judgement
from samestep.drill.judging.stops import names_damage
from samestep.drill.result import DrillResult, Expectation, FindingRecord, Observation, ScenarioResult
from samestep.drill.scenario import Scenario
from samestep.drill.verdict import exit_code_of, not_carried_out, outcome_of, watching_proof
from samestep.errors import ExitCode, MachineError


def finding(slug="optimizer-reset", severity=Severity.DEFECT):
    return FindingRecord(slug=slug, severity=severity, components=[Component.OPTIMIZER], evidence="seen")


def scenario(outcome=Outcome.SAME, holds=True, findings=()):
    return ScenarioResult(
        name="cut/after-save",
        family=Family.CUT,
        title="",
        expected=Expectation(outcomes=[Outcome.SAME]),
        observed=Observation(outcome=outcome),
        holds=holds,
        findings=list(findings),
    )


def result(*scenarios, findings=(), interrupted=False):
    return DrillResult(
        version="0",
        run_id="r",
        outcome=Outcome.SAME,
        exit_code=0,
        command=[],
        scenarios=list(scenarios),
        findings=list(findings),
        interrupted=interrupted,
    )


@pytest.mark.parametrize(
    ("drilled", "code"),
    [
        (result(scenario()), ExitCode.HOLDS),
        (result(), ExitCode.NOTHING_RAN),
        (result(scenario(Outcome.DIFFERENT, False, [finding()])), ExitCode.DEFECT),
        (result(scenario(Outcome.CRASHED, False)), ExitCode.DEFECT),
        (result(scenario(Outcome.INCONCLUSIVE, False)), ExitCode.INCONCLUSIVE),
        (
            result(scenario(), findings=[finding("noisy-control", Severity.MEASUREMENT)]),
            ExitCode.INCONCLUSIVE,
        ),
        (result(scenario(Outcome.INCONCLUSIVE, False), scenario(Outcome.RESTARTED, False)), ExitCode.DEFECT),
        (result(findings=[finding("never-saved")]), ExitCode.DEFECT),
        (result(scenario(findings=[finding("byte-flip-accepted", Severity.NOTE)])), ExitCode.HOLDS),
    ],
)
def test_exit_codes(drilled, code):
    assert exit_code_of(drilled, strict=False) is code


def test_notes_count_when_strict():
    noted = result(scenario(findings=[finding("byte-flip-accepted", Severity.NOTE)]))
    assert exit_code_of(noted, strict=True) is ExitCode.DEFECT


def test_a_run_without_a_handler_leans_on_periodic_saves_and_that_is_a_note():
    (found,) = notice_findings(NoticeRecord(True, 0.1, 30, 143, handled=False), saved=False)
    assert (found.slug, found.severity) == ("no-checkpoint-on-notice", Severity.NOTE)


def test_a_launcher_that_ends_by_itself_hides_no_missing_handler():
    (found,) = notice_findings(NoticeRecord(True, 3.0, 30, 1, handled=False), saved=False)
    assert found.severity is Severity.NOTE


def test_a_handler_that_saves_nothing_is_a_defect():
    (found,) = notice_findings(NoticeRecord(True, 0.1, 30, 0, handled=True), saved=False)
    assert (found.slug, found.severity) == ("no-checkpoint-on-notice", Severity.DEFECT)


def test_staying_beyond_the_grace_is_a_defect_even_with_a_save():
    (found,) = notice_findings(NoticeRecord(False, 30.0, 30, None, handled=True), saved=True)
    assert (found.slug, found.severity) == ("notice-overran", Severity.DEFECT)


def test_a_save_within_the_grace_is_what_is_wanted():
    assert notice_findings(NoticeRecord(True, 2.0, 30, 0, handled=True), saved=True) == []


def test_a_silenced_finding_becomes_a_note_and_explains_the_scenario():
    judged = Judgement(Observation(outcome=Outcome.DIFFERENT), [finding()])
    assert silence(judged.findings, frozenset({"optimizer-reset"}))
    assert judged.findings[0].severity is Severity.NOTE


def test_one_finding_that_is_not_silenced_keeps_the_scenario_failing():
    judged = Judgement(Observation(outcome=Outcome.DIFFERENT), [finding(), finding("ema-lost")])
    assert not silence(judged.findings, frozenset({"optimizer-reset"}))


def test_equal_tensors_prove_that_watching_changes_nothing():
    assert watching_proof({"a": "1"}, {"a": "1"}, exact=True, limited=False)[0] is True


def test_other_tensors_without_the_probe_are_told_by_name():
    proven, how = watching_proof({"a": "1"}, {"a": "2"}, exact=True, limited=False)
    assert proven is False
    assert "a differ" in how


def test_noise_proves_nothing():
    assert watching_proof({"a": "1"}, {"a": "2"}, exact=False, limited=False)[0] is None


def test_an_unwatched_run_without_tensors_proves_nothing():
    assert watching_proof({}, {}, exact=True, limited=False)[0] is None


@pytest.mark.parametrize(
    ("word", "quoted"), [("{out}", "{out}"), ("a b", "'a b'"), ("", "''"), ("x.py", "x.py")]
)
def test_replay_commands_quote_for_a_shell_and_keep_placeholders(word, quoted):
    assert shell_word(word) == quoted


@pytest.mark.parametrize(
    ("drilled", "outcome"),
    [
        (result(scenario(), scenario(Outcome.REFUSED)), Outcome.SAME),
        (result(scenario(Outcome.LOST_WORK, False), scenario(Outcome.CRASHED, False)), Outcome.CRASHED),
        (result(), Outcome.INCONCLUSIVE),
        (
            result(scenario(), findings=[finding("blind-criterion", Severity.MEASUREMENT)]),
            Outcome.INCONCLUSIVE,
        ),
    ],
)
def test_the_worst_of_what_does_not_hold_is_the_outcome_of_the_drill(drilled, outcome):
    assert outcome_of(drilled) is outcome


def raised_in(function, message):
    return f'Traceback (most recent call last):\n  File "trainer.py", line 12, in {function}\n    load()\n{message}\n'


@pytest.mark.parametrize(
    ("log", "damaged", "named"),
    [
        (
            raised_in("_load_optimizer_and_scheduler", "RuntimeError: broken archive"),
            "checkpoint-18/optimizer.pt",
            True,
        ),
        (raised_in("_load_rng_state", "RuntimeError: broken archive"), "checkpoint-18/rng_state.pth", True),
        (
            raised_in("load", "FileNotFoundError: no such file: 'checkpoint-18/trainer_state.json'"),
            "checkpoint-18/trainer_state.json",
            True,
        ),
        (raised_in("load_model", "RuntimeError: broken archive"), "checkpoint-18/model.bin", False),
        (raised_in("main", "KeyError: 'step'"), "checkpoint-18/optimizer.pt", False),
    ],
)
def test_a_log_names_a_damaged_part_by_its_file_or_by_the_function_that_failed_on_it(log, damaged, named):
    assert names_damage(log, [damaged]) is named


def test_a_scenario_that_cannot_be_carried_out_is_inconclusive_and_says_why():
    planned = Scenario(
        name="cut/after-save",
        family=Family.CUT,
        title="after step 8",
        expected=Expectation(outcomes=[Outcome.SAME], resume_step=6),
        case=Case(family="cut", cut_step=8),
    )
    failed = not_carried_out(planned, MachineError("no space left"), "logs/x.failure.log")
    assert (failed.observed.outcome, failed.holds) == (Outcome.INCONCLUSIVE, False)
    assert "no space left" in failed.observed.summary


def test_a_silenced_finding_does_not_count_even_when_strict():
    noted = finding("byte-flip-accepted", Severity.NOTE)
    silence([noted], frozenset({"byte-flip-accepted"}))
    assert exit_code_of(result(scenario(findings=[noted])), strict=True) is ExitCode.HOLDS


def test_a_run_that_takes_no_notice_overruns_even_when_it_ends_within_the_grace():
    notice = NoticeRecord(True, 2.0, 30, 0, handled=True)
    (found,) = notice_findings(notice, saved=True, ignored=True)
    assert (found.slug, found.severity) == ("notice-overran", Severity.DEFECT)


def test_an_interrupted_drill_is_never_the_same():
    assert outcome_of(result(scenario(), interrupted=True)) is Outcome.INCONCLUSIVE
