"""What a run tells: scalars, progress, and what it came to over all its attempts."""

from __future__ import annotations

import io
import json
import time

import pytest
import torch

from samestep.journal.odometer import Odometer, Shown, read_odometer
from samestep.run.accounts import Life, accounts_of, interrupted_lives
from samestep.run.costs import StepCosts
from samestep.run.errors import RunError
from samestep.run.progress import Pace, Progress
from samestep.run.scalars import Scalars, sinks_of
from samestep.run.session import process_seconds


def life(resumed, last, pieces, *, began=0.0, seen=0.0, ended=False):
    return Life("a", resumed, last, tuple(pieces), began, seen, ended)


def test_scalars_are_json_lines_by_step_and_are_passed_on(tmp_path):
    passed = []
    scalars = Scalars(
        tmp_path / "logs" / "scalars.jsonl", [lambda step, numbers: passed.append((step, numbers))]
    )
    scalars.log(3, {"loss": torch.tensor(0.5, requires_grad=True), "rate": 1e-3})
    scalars.log(4, {"loss": float("nan")})
    scalars.flush()
    lines = [json.loads(line) for line in scalars.path.read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(3, 0.5), (4, "nan")]
    assert passed[0] == (3, {"loss": 0.5, "rate": 1e-3})


def test_a_logged_value_that_is_no_number_is_refused_by_name(tmp_path):
    scalars = Scalars(tmp_path / "scalars.jsonl")
    for value in ("high", torch.ones(3), None):
        with pytest.raises(RunError, match="loss"):
            scalars.log(1, {"loss": value})


def test_what_was_logged_stays_as_it_was_when_the_script_goes_on_adding(tmp_path):
    scalars = Scalars(tmp_path / "scalars.jsonl")
    total = torch.zeros(())
    for step in (1, 2):
        total += 1
        scalars.log(step, {"total": total})
    scalars.flush()
    assert [json.loads(line)["total"] for line in scalars.path.read_text().splitlines()] == [1.0, 2.0]


def test_scalars_that_cannot_be_written_stop_no_training(tmp_path):
    (tmp_path / "file").write_text("")
    scalars = Scalars(tmp_path / "file" / "scalars.jsonl")
    scalars.log(1, {"loss": 1.0})
    scalars.flush()
    assert "cannot be written" in scalars.problem


def test_an_unknown_receiver_of_scalars_is_refused(tmp_path):
    with pytest.raises(RunError, match="comet"):
        sinks_of("comet", tmp_path)


def test_progress_says_how_far_how_fast_and_how_long(tmp_path):
    stream = io.StringIO()
    progress = Progress(total=100, stream=stream)
    progress.step(10, 0.0, {})
    progress.step(40, 60.0, {"loss": 0.25})
    assert stream.getvalue() == "step 40/100 · 0.5 steps/s · 2 min 00 s left · loss 0.25\n"


def test_progress_that_is_not_shown_says_nothing():
    stream = io.StringIO()
    progress = Progress(shown=False, stream=stream)
    progress.say("hello")
    progress.step(1, 100.0, {})
    assert not stream.getvalue()


def test_steps_are_accounted_once_however_often_they_were_executed():
    lives = [
        life(0, 14, [(1, 14, 14.0)], began=0.0, seen=14.0),
        life(12, 20, [(13, 20, 8.0)], began=30.0, seen=38.0, ended=True),
    ]
    accounts = accounts_of(lives, 20, 40.0)
    assert (accounts.attempts, accounts.steps, accounts.steps_lost) == (2, 20, 2)
    assert accounts.step_seconds == pytest.approx(20.0)
    assert accounts.goodput == pytest.approx(0.5)
    assert "2 steps lost" in accounts.text()


def test_an_attempt_that_falls_back_to_an_older_bundle_takes_back_steps_of_all_before_it():
    """Steps 41 to 80 of the first attempt were the point that the second went on from, and are executed once more."""
    lives = [
        life(0, 100, [(1, 100, 100.0)], seen=100.0),
        life(80, 120, [(81, 120, 40.0)], began=110.0, seen=150.0),
        life(40, 60, [(41, 60, 20.0)], began=160.0, seen=180.0, ended=True),
    ]
    accounts = accounts_of(lives, 60, 180.0)
    assert accounts.steps_lost == (100 - 40) + (120 - 80)
    assert accounts.steps + accounts.steps_lost == 100 + 40 + 20
    assert accounts.step_seconds == pytest.approx(60.0)


def test_a_mean_life_is_learned_from_attempts_that_did_not_end_by_themselves():
    lives = [life(0, 5, [], seen=100.0), life(0, 9, [], seen=50.0, ended=True), life(0, 9, [], seen=7.0)]
    assert interrupted_lives(lives) == [100.0]


def test_pace_gives_the_steps_since_it_was_asked_last():
    pace = Pace(4)
    assert pace.take() is None
    pace.finished(5)
    pace.finished(6)
    assert pace.take()[:2] == (5, 6)
    assert pace.take() is None


def test_pace_tells_waits_for_batches_apart_and_begins_with_the_first(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])

    def source():
        for seconds in (5.0, 2.0, 3.0):
            now[0] += seconds
            yield seconds

    pace = Pace(0)
    for step, _ in enumerate(pace.batches(source()), start=1):
        now[0] += 1.0
        pace.finished(step)
    pace.pause()
    assert pace.take() == (1, 3, 8.0, 5.0)
    pace.finished(4)
    assert pace.take()[3] == 0.0


def test_pace_says_nothing_of_waits_where_the_loop_takes_its_batches_by_itself():
    pace = Pace(0)
    pace.finished(1)
    assert pace.take().waited is None


def test_a_process_knows_how_old_it_is():
    assert 0 < process_seconds() < 24 * 3600


def test_a_save_costs_what_it_blocks_and_what_steps_take_longer_meanwhile():
    costs = StepCosts()
    for _ in range(20):
        costs.step(0.1, in_flight=False)
    for _ in range(5):
        costs.step(0.12, in_flight=True)
    assert costs.of_save(0.05) == pytest.approx(0.05 + 5 * 0.02)
    assert costs.of_save(0.05) == pytest.approx(0.05)


def test_the_last_step_is_there_when_the_process_is_gone(tmp_path):
    path = tmp_path / "logs" / "a.step"
    Odometer(path).show(41)
    shown = read_odometer(path)
    assert shown.step == 41
    assert time.time() - 60 < shown.at <= time.time()
    assert read_odometer(tmp_path / "none") == Shown(0, 0.0)


def test_an_odometer_that_cannot_be_written_keeps_nothing_and_stops_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    Odometer(tmp_path / "file" / "a.step").show(1)
