"""What an interrupted save did wrong, told from what it left on disk."""

import pytest

from samestep.contract import Outcome, Severity
from samestep.drill.judging.crash import SaveHistory, as_notes, crash_findings
from samestep.drill.judging.judgement import Judgement
from samestep.drill.result import CrashPoint, Observation

NEW_NAMES = SaveHistory(had_whole=True, overwrites=False)


def point(**changes):
    usual = {"window": "save-18", "model": "kill", "after": 7, "last": "create optimizer.pt", "whole": 12}
    return CrashPoint(**{**usual, "torn": ["checkpoint-18"], **changes})


def slugs(outcome, history=NEW_NAMES, **changes):
    judgement = Judgement(Observation(outcome=outcome))
    return [record.slug for record in crash_findings(point(**changes), history, judgement)]


def test_a_restart_from_the_newest_whole_checkpoint_needs_no_explanation():
    assert slugs(Outcome.SAME) == []


def test_a_fresh_start_where_nothing_was_ever_whole_needs_none_either():
    assert slugs(Outcome.SAME, SaveHistory(had_whole=False, overwrites=False), whole=None) == []


@pytest.mark.parametrize("outcome", [Outcome.DIFFERENT, Outcome.CRASHED, Outcome.REFUSED, Outcome.RESTARTED])
def test_a_torn_checkpoint_that_was_picked_before_a_whole_one_is_named(outcome):
    assert slugs(outcome) == ["torn-checkpoint-selected"]


def test_no_whole_checkpoint_left_is_the_saves_own_fault_whatever_the_restart_does():
    for outcome in (Outcome.SAME, Outcome.REFUSED, Outcome.RESTARTED):
        assert slugs(outcome, whole=None) == ["last-good-deleted-first"]
        assert slugs(outcome, SaveHistory(had_whole=True, overwrites=True), whole=None) == [
            "in-place-overwrite"
        ]


def test_a_run_on_a_failing_disk_that_went_on_from_its_own_checkpoint_had_a_whole_one():
    resumed = Judgement(Observation(outcome=Outcome.SAME, resume_step=12))
    after_fault = point(model="fault", whole=None, torn=[])
    assert crash_findings(after_fault, NEW_NAMES, resumed) == []
    anew = Judgement(Observation(outcome=Outcome.SAME, resume_step=0))
    assert [record.slug for record in crash_findings(after_fault, NEW_NAMES, anew)] == [
        "last-good-deleted-first"
    ]


def test_files_of_several_saves_are_named_when_they_were_loaded():
    assert "mixed-generations" in slugs(Outcome.DIFFERENT, mixed=["state"])
    assert "mixed-generations" not in slugs(Outcome.REFUSED, mixed=["state"])


def test_a_state_that_can_still_come_about_after_the_save_has_returned_was_not_made_durable():
    assert "not-durable-after-save" in slugs(Outcome.CRASHED, lasting=True, model="power-ext4")


def test_a_finished_save_has_nothing_left_to_be_made_durable():
    finished = SaveHistory(had_whole=True, overwrites=False, finished=True)
    assert slugs(Outcome.CRASHED, finished, lasting=True, whole=18, torn=[]) == []


def test_a_lost_change_of_names_is_named_for_what_it_is():
    found = slugs(Outcome.CRASHED, lasting=True, model="posix-worst", way="lost")
    assert "rename-not-durable" in found
    assert "not-durable-after-save" not in found


def test_what_the_storage_rules_out_is_noted_only():
    judgement = Judgement(Observation(outcome=Outcome.CRASHED))
    found = crash_findings(point(), NEW_NAMES, judgement)
    as_notes(found, point(model="posix-worst"), "ext4")
    assert [record.severity for record in found] == [Severity.NOTE]
    assert found[0].details == ["only under posix-worst, which ext4 rules out"]


def test_a_storage_whose_type_is_not_known_is_called_the_one_in_use():
    found = crash_findings(point(), NEW_NAMES, Judgement(Observation(outcome=Outcome.CRASHED)))
    as_notes(found, point(model="nfs"), "")
    assert found[0].details == ["only under nfs, which the storage in use rules out"]
