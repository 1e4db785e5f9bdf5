"""What is measured of a run, with its spread, and what is said to be missing."""

from __future__ import annotations

import json

import msgspec
import pytest

from cost_stores import Stored, three_hundred_steps
from samestep.cost.errors import MeasuringError
from samestep.cost.inputs import Exponential, Measured, Quantity
from samestep.cost.records.measuring import observe_drill, observe_run
from samestep.cost.records.observed import Observed, Seen, few_interruptions, read_measured, write_measured


@pytest.fixture
def two_lives(tmp_path):
    """Two attempts, the first taken away with a notice, with steps of two speeds and waits for data."""
    run = Stored(tmp_path / "run")
    first = run.begin(0.0, process_seconds=2.0)
    first.steps(8.0, 18.0, 1, 10, waited=1.0)
    run.commit(21.0, 10)
    first.saved(18.0, 18.5, 10, committed=21.0)
    first.steps(18.5, 38.5, 11, 20, waited=2.0)
    first.note(38.5, "notice", source="SIGTERM", step=20)
    run.commit(41.0, 20)
    first.saved(38.5, 39.0, 20, committed=41.0, waits=True)
    first.note(41.5, "ended", outcome="notice", step=20)
    second = run.begin(102.0, process_seconds=1.0)
    second.steps(105.0, 115.0, 21, 30, waited=1.0)
    second.note(116.0, "ended", outcome="finished", step=30)
    run.commit(115.0, 30)
    return run


def test_steps_saves_and_starts_are_measured_with_count_and_spread(two_lives):
    found = observe_run(two_lives.root)
    step = found.quantities["step_seconds"]
    assert step.value == pytest.approx((9 + 18 + 9) / 30)
    assert (step.low, step.high, step.count) == (pytest.approx(0.9), pytest.approx(1.8), 30)
    assert "2 attempts" in step.source
    assert found.quantities["stall_seconds"].value == pytest.approx(4 / 30)
    assert found.quantities["save_seconds"].value == pytest.approx(0.5)
    assert "1 save that the training waited for left out" in found.quantities["save_seconds"].source
    assert found.quantities["persist_seconds"].value == pytest.approx(2.5)
    assert found.quantities["restart_seconds"].value == pytest.approx(4.0)
    assert found.quantities["restart_seconds"].count == 1


def test_sizes_are_those_of_the_manifests(two_lives):
    found = observe_run(two_lives.root)
    sizes = [two_lives.attempt.newest.bundle.size]
    assert found.quantities["save_bytes"].count == 3
    assert 0 < found.quantities["save_bytes"].value < sizes[0] + 1
    assert found.quantities["kept_bytes"].value > 0
    assert "folder" in found.missing["save_requests"]


def test_interruptions_and_usable_notices_are_counted(two_lives):
    seen = observe_run(two_lives.root).seen
    assert (seen.interruptions, seen.notices, seen.usable_notices) == (1, 1, 1)
    assert seen.notes == ["of 1 interruption 1 announced themselves, 1 in time for a save"]
    assert seen.lives_seconds == (pytest.approx(43.5),)
    assert seen.censored_seconds == (pytest.approx(15.0),)
    assert seen.wait.value == pytest.approx(101 - 41.5)
    risk = seen.risk()
    assert risk.lives == Exponential(
        mean_seconds=pytest.approx(55.5), interruptions=1, observed_seconds=pytest.approx(55.5)
    )
    assert (risk.usable_notice, risk.notice_seconds) == (1.0, pytest.approx(3.0))


def test_a_notice_is_part_of_the_life_that_was_seen_and_is_not_counted_twice():
    """Four machines of 100 s, one of which was announced 20 s before its end: a fourth of that for each."""
    seen = Seen(lives_seconds=(100.0,) * 4, notices=1, notice_seconds=Quantity(value=20.0))
    risk = seen.risk()
    assert risk.notice_seconds == pytest.approx(5.0)
    assert risk.lives.mean_seconds + risk.notice_seconds == pytest.approx(100.0)


def test_a_notice_that_left_no_time_for_a_save_is_not_usable(tmp_path):
    run = Stored(tmp_path / "run")
    first = run.begin(0.0)
    first.steps(1.0, 9.0, 1, 8)
    first.saved(9.0, 9.5, 8)
    first.steps(9.5, 11.0, 9, 10)
    first.note(11.0, "notice", source="SIGTERM", step=10)
    first.note(11.0, "save-asked", step=10, waits=True)
    said = {"bundle": "b", "number": 1, "size_bytes": 1, "written_bytes": 1}
    first.note(12.0, "save-committed", step=8, **said)  # the earlier one, which is not what the notice needed
    run.begin(20.0)
    seen = observe_run(run.root).seen
    assert (seen.interruptions, seen.notices, seen.usable_notices) == (1, 1, 0)


@pytest.mark.parametrize(
    ("outcome", "source"),
    [("notice", "Ctrl-C"), ("closed", ""), ("ValueError", "")],
    ids=["hand", "end", "error"],
)
def test_an_attempt_that_no_machine_took_away_is_no_interruption(tmp_path, outcome, source):
    run = Stored(tmp_path / "run")
    first = run.begin(0.0)
    first.steps(1.0, 11.0, 1, 10)
    if source:
        first.note(11.0, "notice", source=source, step=10)
    first.note(11.5, "ended", outcome=outcome, step=10)
    run.begin(20.0)
    seen = observe_run(run.root).seen
    assert (seen.interruptions, seen.censored_seconds) == (0, (pytest.approx(11.5),))


def test_what_was_not_measured_is_said_and_not_made_up(tmp_path):
    run = Stored(tmp_path / "run")
    run.begin(0.0)
    found = observe_run(run.root)
    assert not found.quantities
    assert set(found.missing) == {name for name in Measured.__struct_fields__ if name != "schema"}
    with pytest.raises(MeasuringError, match="step_seconds: no journal tells of steps") as error:
        found.measured()
    assert "measured.step, measured.save, measured.restart" in error.value.hint


def test_a_run_that_nothing_interrupted_says_how_little_is_known_of_its_mean_life():
    seen = Seen(censored_seconds=(7200.0,))
    assert "no interruption was seen in 2 h" in few_interruptions(0, seen.observed_seconds)
    assert seen.risk().lives == Exponential(mean_seconds=7200.0, interruptions=0, observed_seconds=7200.0)
    with pytest.raises(MeasuringError, match="no running time"):
        Seen().risk()


def test_the_first_start_stands_for_restarts_only_where_there_are_none(tmp_path):
    run = three_hundred_steps(tmp_path / "run")
    assert observe_run(run.root).quantities["restart_seconds"].value == pytest.approx(30.0)
    alone = Stored(tmp_path / "alone")
    alone.begin(0.0).steps(5.0, 15.0, 1, 10)
    found = observe_run(alone.root).quantities["restart_seconds"]
    assert found.value == pytest.approx(5.0)
    assert "nothing was restored" in found.source


def test_how_much_a_save_slows_steps_is_compared_between_ranges(tmp_path):
    run = Stored(tmp_path / "run")
    journal, at = run.begin(0.0), 0.0
    for _ in range(4):
        journal.steps(at, at + 10, 1, 10)
        journal.saved(at + 10, at + 11, 10)
        journal.steps(at + 11, at + 23.5, 11, 20)
        said = {"bundle": "b", "number": 1, "size_bytes": 1, "written_bytes": 1}
        journal.note(at + 23.5, "save-committed", step=10, **said)
        at += 23.5
    share = observe_run(run.root).quantities["persist_share"]
    assert share.value == pytest.approx(0.2)
    assert share.count == 4


def test_what_is_said_by_hand_counts_before_what_was_measured(two_lives):
    by_hand = Observed({"restart_seconds": Quantity(value=99.0)})
    measured = (by_hand | observe_run(two_lives.root)).measured()
    assert measured.restart_seconds == Quantity(value=99.0)
    assert measured.save_seconds.value == pytest.approx(0.5)


def test_what_was_measured_is_written_and_read_again(tmp_path, two_lives):
    measured = observe_run(two_lives.root).measured()
    path = tmp_path / "measured.json"
    write_measured(measured, path)
    assert json.loads(path.read_text())["schema"] == "samestep.measured/1"
    assert read_measured(path).measured() == measured


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema": "samestep.measured/2"}, "reads samestep.measured/1"),
        ({"step_secs": {"value": 1}}, "unknown field 'step_secs'"),
        ({"step_seconds": {"value": -1}}, "step_seconds"),
        ({"step_seconds": {"value": 1, "low": 2}}, "between its low and its high"),
        ({"step_seconds": {"value": "fast"}}, "step_seconds"),
    ],
    ids=["schema", "unknown", "negative", "order", "text"],
)
def test_a_file_of_measurements_that_cannot_be_meant_is_refused(tmp_path, change, told):
    one = {"value": 1.0}
    tree = {"schema": "samestep.measured/1", "step_seconds": one, "save_seconds": one, "restart_seconds": one}
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(tree | change))
    with pytest.raises(MeasuringError, match=told):
        read_measured(path)


def test_a_drill_measures_steps_and_fresh_restarts_and_nothing_else(tmp_path):
    def series(first, *times):
        return {
            "attempt": "a", "steps": list(range(first, first + len(times))),
            "began": list(times), "ended": [time + 0.5 for time in times],
        }  # fmt: skip

    drill = {
        "schema": "samestep.drill/1",
        "run_id": "20261129-120000",
        "control": {"runs": 2, "series": [series(1, 3.0, 4.0, 5.0), series(1, 3.0, 4.0)]},
        "scenarios": [
            {"name": "a", "series": [series(5, 6.0, 7.0)]},
            {"name": "b", "series": [series(5, 4.0)]},
            {"name": "c", "series": [series(5, 0.5)], "forked": True},
            {"name": "d", "series": [series(1, 2.0)]},
        ],
    }
    (tmp_path / "drill.json").write_bytes(msgspec.json.encode(drill))
    found = observe_drill(tmp_path)
    assert found.quantities["step_seconds"] == Quantity(
        value=0.5, low=0.5, high=0.5, count=3, source="drill 20261129-120000, watched"
    )
    assert (found.quantities["restart_seconds"].value, found.quantities["restart_seconds"].count) == (5.0, 2)
    assert found.missing["save_seconds"] == "a drill does not measure it"


def test_another_json_file_is_no_drill(tmp_path):
    (tmp_path / "drill.json").write_text("{}")
    with pytest.raises(MeasuringError, match=r"reads samestep\.drill/1"):
        observe_drill(tmp_path / "drill.json")
    (tmp_path / "drill.json").write_text("{")
    with pytest.raises(MeasuringError, match="is no JSON"):
        observe_drill(tmp_path / "drill.json")
