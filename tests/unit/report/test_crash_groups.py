"""Hundreds of states, summed up per save."""

import json
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from crash_samples import SAVE, state
from report_samples import defect_result
from samestep.cli.progress import Progress
from samestep.contract import Outcome
from samestep.drill.result import CrashRecord
from samestep.report import decode_result, encode_result, render_terminal
from samestep.report.crash.chart import strip_chart
from samestep.report.crash.groups import charted, most_telling, not_recorded, summaries, summary_of
from samestep.report.crash.strip import FILE_LIMIT, cell_rows, columns, file_lines, operation_rows
from samestep.report.github import render_annotations
from samestep.report.junit import render_junit
from samestep.report.markdown import render_markdown
from samestep.report.series import timeline_rows

FRESH = "optimizer-reset"
TORN = "torn-checkpoint-selected"
LATE = "not-durable-after-save"


def states():
    return [
        state("kill", 9, resume=3, whole=3, summary="resumed at 3"),
        state(
            "kill", 12, outcome=Outcome.REFUSED, whole=3, findings=[TORN], summary="names the damaged part"
        ),
        state("kill", 14, outcome=Outcome.DIFFERENT, resume=6, whole=3, findings=[TORN, FRESH]),
        state("kill", 17, outcome=Outcome.REFUSED, whole=3, findings=[TORN, LATE], lasting=True),
        state(
            "power-ext4",
            14,
            outcome=Outcome.DIFFERENT,
            resume=6,
            findings=[TORN, FRESH],
            way="half",
            file="o.pt",
        ),
        state(
            "power-ext4", 20, outcome=Outcome.CRASHED, findings=[LATE], way="empty", file="o.pt", lasting=True
        ),
        state("posix-worst", 19, outcome=Outcome.DIFFERENT, findings=[FRESH], allowed=False),
    ]


def crash_result(found=None, **record):
    result = defect_result()
    result.scenarios = [*result.scenarios, *(states() if found is None else found)]
    result.crash = CrashRecord(
        **{
            "tier": "notify",
            "operations": 11,
            "proven": True,
            "models": ["kill", "power-ext4"],
            "storage": "ext4",
            "windows": [SAVE],
            **record,
        }
    )
    return result


@pytest.fixture
def summary():
    return summaries(crash_result())[0]


def test_a_save_is_one_line_in_numbers(summary):
    assert summary.title == "save-6: 7 of 40 states, kill, power-ext4 and posix-worst"
    assert summary.tally == "1 same · 2 refused · 1 crashed · 3 different"
    assert (summary.word, summary.tone) == ("DIFFERENT", "bad")


def test_states_are_grouped_by_finding_in_the_order_in_which_they_explain_one_another(summary):
    assert [(group.slug, summary.share(group)) for group in summary.groups] == [
        (LATE, "in 2 of 7 states"),
        (TORN, "in 4 of 7 states"),
        (FRESH, "in 2 of 7 states"),
    ]
    assert [group.slug for group in summary.noted] == [FRESH]


def test_the_most_telling_state_is_silent_plain_and_told_in_few_words(summary):
    by_slug = {group.slug: group for group in summary.groups}
    assert by_slug[TORN].telling.name == by_slug[FRESH].telling.name == "crash/save-6/kill/op-014"
    assert by_slug[FRESH].sentence.startswith(
        "killed after optimizer.pt, before scheduler.pt: resumes at 6 with"
    )


def test_what_power_loss_takes_is_not_told_as_a_kill(summary):
    late = summary.groups[0]
    assert late.telling.crash.model == "power-ext4"
    killed = [state("kill", 17, outcome=Outcome.REFUSED, findings=[LATE], lasting=True)]
    alone = summary_of("save-6", killed, crash_result().crash).groups[0]
    assert alone.sentence.startswith(
        "power lost after the save had returned, on disk only what came up to the middle"
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"outcome": Outcome.DIFFERENT}, {"outcome": Outcome.CRASHED}),
        ({"model": "kill"}, {"model": "power-ext4"}),
        ({"after": 13}, {"after": 17}),
        ({}, {"way": "torn-half", "file": "optimizer.pt"}),
    ],
)
def test_what_makes_a_state_more_telling(better, worse):
    plain = {"model": "kill", "after": 14, "outcome": Outcome.DIFFERENT}
    good, bad = state(**{**plain, **better}), state(**{**plain, **worse})
    assert most_telling([bad, good], SAVE) is good


def test_states_without_a_finding_are_a_group_of_their_own():
    found = [state("kill", 14, outcome=Outcome.LOST_WORK, resume=3, whole=6)]
    group = summary_of("save-6", found).groups[0]
    assert (group.slug, group.title, group.components) == ("", "lost-work", "")
    assert (
        group.sentence
        == "killed after: write to checkpoint-6/optimizer.pt: resumes at 3, the whole checkpoint 6 unused"
    )


def test_a_right_fresh_start_that_lost_every_checkpoint_is_not_called_the_same():
    lost = state("kill", 20, findings=["last-good-deleted-first"], summary="a true fresh start, 6 steps lost")
    lost.holds = False
    found = summary_of("save-6", [lost, state("kill", 9)], crash_result().crash)
    assert (found.word, found.tally) == ("NOTHING LEFT", "1 same · 1 nothing left")
    assert [row["kind"] for row in cell_rows(found)] == ["same", "nothing left"]


def test_a_weak_recording_says_why():
    assert not_recorded(crash_result()) == []
    weak = crash_result(proven=False, notes=["model.pt is written through a mapping"])
    assert len(not_recorded(weak)) == 2
    assert "model.pt is written through a mapping" in " ".join(render_terminal(weak).split())
    assert "model.pt is written through a mapping" in render_markdown(weak)


def test_the_terminal_shows_a_line_per_save_and_a_paragraph_per_finding():
    text = render_terminal(crash_result())
    assert text.count("\ncrash  ") == 1
    assert (
        "crash     save-6: 7 of 40 states, kill, power-ext4 and posix-worst  DIFFERENT   1 same · 2 refused"
        in text
    )
    assert "in 4 of 7 states\n    killed after optimizer.pt, before scheduler.pt: resumes at 6" in text
    assert f"{FRESH}           optimizer  in 2 of 7 states, told above" in text
    assert "noted, since only posix-worst allows it: optimizer-reset in 1 of 7 states" in text
    assert "samestep drill --replay crash/save-6/kill/op-014 " in text


def test_while_running_only_the_first_state_of_each_kind_is_shown(capsys):
    result = crash_result([*states(), *states()])
    progress = Progress(quiet=False, colour=False)
    with progress:
        progress.recorded(result.crash)
        progress.planned([item.title for item in result.scenarios])
        for item in states() + states():
            progress.scenario(item)
        running = capsys.readouterr().out
        progress.conclude(result, "report.html")
    assert len([line for line in running.splitlines() if line.startswith("crash ")]) == 4
    assert "crash     REFUSED: killed before model.safetensors got its name: stops; names" in running
    assert "save-6: 14 of 40 states" in capsys.readouterr().out


def test_a_new_save_ends_the_one_before(capsys):
    progress = Progress(quiet=False, colour=False)
    with progress:
        for item in [state("kill", 9, window="save-3"), state("kill", 9), *defect_result().scenarios[:1]]:
            progress.scenario(item)
    shown = [line.split(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown[:2] == ["crash     save-3", "crash     save-6"]
    assert shown[2].startswith("cut ")


def test_junit_has_a_case_per_save_and_model():
    suite = ET.fromstring(render_junit(crash_result()))[0]
    cases = {case.get("name"): case for case in suite if case.get("classname") == "samestep.crash"}
    assert list(cases) == ["save-6/kill", "save-6/power-ext4", "save-6/posix-worst"]
    failure = cases["save-6/kill"].find("failure")
    assert failure.get("message") == "save-6: 4 states, kill: 1 same · 2 refused · 1 different"
    assert "torn-checkpoint-selected: in 3 of 4 states" in failure.text
    assert "replay: samestep drill --replay crash/save-6/kill/op-014" in failure.text
    assert cases["save-6/posix-worst"].find("failure") is None
    assert cases["save-6/kill"].get("time") == "2.000"


def test_markdown_has_a_row_per_save_and_kind_of_failure():
    text = render_markdown(crash_result())
    rows = [line for line in text.splitlines() if line.startswith("|") and "| crash |" in line]
    assert len(rows) == 4
    assert (
        "save-6: torn-checkpoint-selected in 4 of 7 states | **DIFFERENT** | killed after optimizer.pt"
        in rows[2]
    )
    assert "### save-6: 7 of 40 states" in text


def test_states_that_are_only_noted_are_counted_in_the_last_line():
    last = render_terminal(crash_result()).splitlines()[-1]
    assert "crash 2 of 7 hold, 1 disk state noted ·" in last


def test_annotations_have_one_line_per_kind_of_failure():
    result = crash_result()
    result.scenarios = states()
    lines = render_annotations(result).splitlines()
    assert len(lines) == 3
    assert lines[1].startswith(
        f"::error title=samestep {TORN}::save-6, in 4 of 7 states: killed after optimizer.pt"
    )


def test_a_result_of_before_this_family_is_read_as_ever():
    plain = json.loads(encode_result(crash_result()))
    del plain["crash"]
    for item in plain["scenarios"]:
        del item["crash"]
    result = decode_result(json.dumps(plain).encode(), "old")
    assert summaries(result) == []
    assert "crash" in render_terminal(result)


def test_every_operation_that_matters_has_a_column():
    laid = columns(SAVE, cuts=range(9, 21))
    assert laid.count == 1 + len(SAVE.operations) - 1, "closing a file is no operation of its own"
    assert laid.places[15] == laid.places[14]
    assert laid.marks[4] == "rename"


def test_writes_in_a_row_share_a_column_unless_a_state_was_cut_between_them():
    joined = columns(SAVE)
    assert joined.places[17] == joined.places[18]
    assert joined.labels[joined.places[17]].startswith("2 operations: ")
    apart = columns(SAVE, cuts=[17])
    assert apart.places[17] + 1 == apart.places[18]


def test_cells_stand_at_their_operation_and_on_one_another():
    save = replace(SAVE, untried={"kill": [14, 14, 17]})
    found = summary_of("save-6", states(), crash_result(windows=[save]).crash)
    rows = cell_rows(found)
    laid = columns(save, cuts=[9, 12, 14, 17, 19, 20])
    at_14 = [
        (row["level"], row["kind"])
        for row in rows
        if (row["column"], row["model"]) == (laid.places[14], "kill")
    ]
    assert at_14 == [(0, "different"), (1, "not tried"), (2, "not tried")]
    assert [row["kind"] for row in rows if row["model"] == "posix-worst"] == ["noted"]
    assert rows[0]["what"].startswith("killed ")


def test_a_torn_write_stands_at_the_write_that_was_torn():
    found = summary_of(
        "save-6", [state("kill", 13, way="torn-half", file="optimizer.pt")], crash_result().crash
    )
    row = cell_rows(found)[0]
    assert row["operation"] == "write to checkpoint-6/optimizer.pt"


def test_operations_are_told_by_file(summary):
    rows = operation_rows(summary)
    assert [row["file"] for row in rows][:3] == ["checkpoint-6", "model.safetensors", "model.safetensors"]
    assert {row["mark"] for row in rows} == {"create", "write", "rename", "fsync", "delete"}


def test_too_many_files_share_lines():
    many = [f"checkpoint-{n % 3}/file-{n}" for n in range(90)]
    assert set(file_lines(many)) == {f"checkpoint-{n}/…" for n in range(3)}
    loose = [f"file-{n}" for n in range(90)]
    assert len(set(file_lines(loose))) == FILE_LIMIT
    assert file_lines(loose)[-1] == "other files"


def test_a_save_without_operations_has_no_chart():
    assert strip_chart(summary_of("save-6", states()), 1000) is None


def test_charts_of_runs_show_no_more_states_than_the_telling_ones():
    shown = charted(crash_result())
    assert [item.name for item in shown.scenarios if item.crash] == [
        "crash/save-6/kill/op-014",
        "crash/save-6/power-ext4/op-020/o.pt-empty",
    ]
    assert len(timeline_rows(shown)) == len(timeline_rows(defect_result()))
