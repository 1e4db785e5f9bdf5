"""The words that every report shares."""

import msgspec
import pytest

from report_samples import SAMPLES, defect_result, holding_result, noisy_result, optimizer_reset
from samestep.contract import Family, Outcome, Severity
from samestep.report import view


def scenario(result, name):
    return next(s for s in result.scenarios if s.name == name)


@pytest.mark.parametrize(
    ("kind", "tone", "headline"),
    [
        ("defect", view.BAD, "A damaged checkpoint would silently change this run"),
        ("holding", view.GOOD, "The restarted run is the same run"),
        ("noisy", view.UNKNOWN, "The measurement cannot tell"),
        ("empty", view.UNKNOWN, "Nothing was checked"),
    ],
)
def test_the_verdict_says_what_would_happen(kind, tone, headline):
    verdict = view.verdict(SAMPLES[kind]())
    assert (verdict.tone, verdict.headline) == (tone, headline)


def test_a_failing_cut_is_named_before_a_failing_damage():
    result = defect_result()
    cut = scenario(result, "cut-twice")
    cut.observed.outcome, cut.holds = Outcome.DIFFERENT, False
    assert view.verdict(result).headline == "An interruption would silently change this run"


def test_the_worst_outcome_words_the_verdict():
    result = defect_result()
    for failing in result.scenarios:
        if failing.observed.outcome is Outcome.DIFFERENT and not failing.holds:
            failing.observed.outcome = Outcome.RESTARTED
    assert view.verdict(result).headline == "A damaged checkpoint would silently start this run over"


def test_an_inconclusive_scenario_is_no_failure_and_no_pass():
    result = noisy_result()
    assert view.verdict(result).sentence == "1 of 10 scenarios cannot be judged."
    assert view.scenario_tone(result.scenarios[0]) == view.UNKNOWN


def test_an_exit_code_without_a_name_is_not_a_pass():
    for code in (2, 3, 130, 143):
        result = msgspec.structs.replace(holding_result(), exit_code=code)
        assert view.verdict(result).tone == view.UNKNOWN


def test_tallies_count_what_holds_and_what_was_noted():
    sentences = {str(t.family): t.sentence for t in view.tallies(defect_result().scenarios)}
    assert sentences == {
        "cut": "5 of 5 hold",
        "notice": "1 of 1 holds",
        "damage": "3 of 6 hold, 2 byte flips noted",
        "restart": "1 of 1 holds",
    }


def test_families_keep_the_order_of_the_plan():
    families = list(view.by_family(defect_result().scenarios))
    assert families == [Family.CUT, Family.NOTICE, Family.DAMAGE, Family.RESTART]


def test_failures_are_grouped_by_what_they_say_not_by_the_step():
    result = defect_result()
    scenario(result, "damage-missing-scheduler").findings = [optimizer_reset(13)]
    groups = view.failure_groups(result.scenarios)
    assert [(g.first.name, [o.name for o in g.others]) for g in groups] == [
        ("damage-missing-optimizer", ["damage-missing-scheduler"]),
        ("damage-foreign", []),
    ]


def test_worst_first_puts_failures_before_passes_and_keeps_the_plan_within():
    names = [s.name for s in view.worst_first(defect_result().scenarios)]
    assert names[:4] == [
        "damage-missing-optimizer",
        "damage-missing-scheduler",
        "damage-foreign",
        "cut-after-save",
    ]


def test_notes_are_shown_only_beside_a_failure():
    noted = scenario(defect_result(), "damage-flip-model").findings
    assert view.shown_findings(noted, holds=True) == []
    assert view.shown_findings(noted, holds=False) == noted


def test_defects_come_before_notes():
    note = scenario(defect_result(), "damage-flip-model").findings[0]
    shown = view.shown_findings([note, optimizer_reset(19)], holds=False)
    assert [finding.severity for finding in shown] == [Severity.DEFECT, Severity.NOTE]


def test_a_finding_of_a_newer_version_keeps_its_slug():
    finding = optimizer_reset(19)
    finding.slug = "flux-reset"
    kind = view.finding_kind(finding)
    assert (kind.slug, kind.fix) == ("flux-reset", "")


def test_a_control_that_never_saved_says_so():
    control = defect_result().control
    control.save_steps, control.ranks = [], 2
    assert view.control_text(control) == "2 runs of 24 steps on 2 ranks agree bit for bit; no save seen"


@pytest.mark.parametrize(
    ("proven", "start"), [(True, "proven not to change"), (False, "changes the run"), (None, "not proven")]
)
def test_watching_is_never_called_proven_without_proof(proven, start):
    control = defect_result().control
    control.watching_proven = proven
    assert view.watching_text(control).startswith(start)


def test_placeholders_stay_readable_and_the_rest_is_quoted():
    words = ["python", "a b.py", "--out", "{out}", "it's", "$HOME"]
    assert view.command_line(words) == """python 'a b.py' --out {out} 'it'"'"'s' '$HOME'"""


def test_the_replay_command_carries_how_to_resume():
    expected = (
        "samestep drill --resume-with '--resume_from_checkpoint {checkpoint}'"
        " -- python examples/transformers_trainer.py --out {out}"
    )
    assert view.replay_command(defect_result()) == expected
