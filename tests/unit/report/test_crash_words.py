"""One interruption of a save in a sentence."""

import pytest
from msgspec.structs import replace

from crash_samples import FINDINGS, SAVE, state
from samestep.contract import Component, Outcome
from samestep.crash.wording import WAYS
from samestep.report.crash.words import Steps, ending, moment, told


def test_the_sentence_names_the_file_before_and_after_and_what_the_run_goes_on_with():
    killed = state(
        "kill", after=14, outcome=Outcome.DIFFERENT, resume=6, whole=3, findings=["optimizer-reset"]
    )
    killed.findings[0].components.append(Component.SCHEDULE)
    killed.findings[0].details = ["0/exp_avg_sq is absent"]
    expected = (
        "killed after optimizer.pt, before scheduler.pt: resumes at 6 with a fresh Adam and a fresh schedule, "
        "the whole checkpoint 3 unused, no error"
    )
    assert told(killed, SAVE) == expected


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (9, "before the save wrote anything"),
        (10, "after the folder checkpoint-6 was made, before model.safetensors"),
        (11, "when model.safetensors was still empty"),
        (12, "before model.safetensors got its name"),
        (13, "after the rename to model.safetensors, before optimizer.pt"),
        (15, "after optimizer.pt, before scheduler.pt"),
        (17, "while scheduler.pt was being written"),
        (18, "before the fsync of scheduler.pt"),
        (19, "after the fsync of scheduler.pt, before old.pt was deleted"),
        (20, "after the last operation of the save"),
    ],
)
def test_every_place_in_a_save_has_words(after, said):
    assert moment(state("kill", after=after).crash, SAVE) == f"killed {said}"


def test_a_file_is_called_by_the_name_it_gets_in_the_end():
    assert Steps.of(SAVE).names[1:4] == ["model.safetensors"] * 3


def test_files_of_one_name_are_told_apart_by_their_folder():
    deletion = replace(SAVE.operations[-1], path="checkpoint-3/scheduler.pt")
    twice = replace(SAVE, operations=[*SAVE.operations[:-1], deletion])
    said = moment(state("kill", after=19).crash, twice)
    assert said == (
        "killed after the fsync of checkpoint-6/scheduler.pt, before checkpoint-3/scheduler.pt was deleted"
    )


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("torn-first-byte", "killed one byte into a write to optimizer.pt"),
        ("torn-half", "killed halfway through a write to optimizer.pt"),
        ("torn-last-page", "killed before the last page of a write to optimizer.pt"),
    ],
)
def test_a_torn_write_is_told_by_its_file(way, said):
    assert moment(state("kill", after=13, way=way, file="optimizer.pt").crash, SAVE) == said


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("empty", "optimizer.pt empty"),
        ("zeros", "optimizer.pt all zeros"),
        ("half", "of optimizer.pt only the first half"),
        ("all-lost", "without any unsynced data"),
        ("newer-lost", "without the data written after optimizer.pt"),
    ],
)
def test_lost_data_is_told_behind_the_place(way, said):
    lost = state("power-ext4", after=14, way=way, file="optimizer.pt").crash
    assert moment(lost, SAVE) == f"power lost after optimizer.pt, before scheduler.pt, {said}"


def test_what_may_happen_after_the_save_is_told_so():
    late = state("power-ext4", after=20, way="empty", file="optimizer.pt", lasting=True).crash
    early = state("power-ext4", after=14, way="empty", file="optimizer.pt", lasting=True).crash
    inside = state("power-ext4", after=17, lasting=True).crash
    returned = "power lost after the save had returned"
    assert moment(late, SAVE) == f"{returned}, optimizer.pt empty"
    assert (
        moment(early, SAVE) == f"{returned}, on disk only what came before scheduler.pt, optimizer.pt empty"
    )
    assert moment(inside, SAVE) == f"{returned}, on disk only what came up to the middle of scheduler.pt"


def test_a_lost_change_of_a_name_is_quoted():
    lost = state(
        "posix-worst", after=14, way="lost", damage="rename a to b: this change of a name never …"
    ).crash
    assert moment(lost, SAVE).endswith(", the operation 'rename a to b' lost")


def test_without_operations_the_recording_has_the_word():
    assert moment(state("kill", after=14).crash) == "killed after: write to checkpoint-6/optimizer.pt"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"outcome": Outcome.RESTARTED, "whole": 3},
            "starts over from step 0, the whole checkpoint 3 unused, no error",
        ),
        (
            {"outcome": Outcome.LOST_WORK, "resume": 3, "whole": 6},
            "resumes at 3, the whole checkpoint 6 unused",
        ),
        (
            {"outcome": Outcome.CRASHED, "summary": "exit code 1, names nothing"},
            "stops with exit code 1, names nothing",
        ),
        ({"outcome": Outcome.REFUSED, "summary": "names the damaged part"}, "stops; names the damaged part"),
        ({"outcome": Outcome.REFUSED, "summary": "stops; none was there"}, "stops; none was there"),
        ({"outcome": Outcome.SAME, "summary": "resumed at 6"}, "resumed at 6"),
        (
            {"outcome": Outcome.DIFFERENT, "findings": ["weights-not-restored"]},
            "goes on from a state that the control never had with weights of no step, no error",
        ),
        (
            {"outcome": Outcome.DIFFERENT, "resume": 6, "divergent": 8},
            "resumes at 6, step 8 is not the control's, no error",
        ),
        ({"outcome": Outcome.DIFFERENT, "resume": 6, "exit_code": 3}, "resumes at 6, exit code 3"),
    ],
)
def test_every_outcome_has_words(given, said):
    assert ending(state("kill", after=14, **given)) == said


@pytest.mark.parametrize("slug", FINDINGS)
def test_what_a_run_goes_on_with_is_named_for_findings_about_state(slug):
    found = state("kill", after=14, outcome=Outcome.DIFFERENT, resume=6, findings=[slug])
    assert " with " in ending(found)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_damage_a_state_has_words_of_its_own(way):
    damage = f"checkpoint-6/optimizer.pt: {WAYS[way]}"
    said = moment(state("power-ext4", after=14, way=way, file="optimizer.pt", damage=damage).crash, SAVE)
    assert WAYS[way] not in said
    assert said != moment(state("power-ext4", after=14).crash, SAVE)
