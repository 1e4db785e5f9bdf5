"""Recorded capacity: read from each kind of file, with its traps, and lived through again."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from cost_runs import HOUR, shared
from samestep.cost.errors import CostError
from samestep.cost.risk import Trace, any_of, node_lives, read_trace, read_zones
from samestep.cost.simulation import Plan, Prices, replay
from samestep.cost.simulation.supply import Recorded
from samestep.ledger import Row
from samestep.ledger.intervals import daly_interval, extended

DAY = Plan(work_seconds=24 * HOUR, interval_seconds=900.0, save_seconds=30.0, restart_seconds=600.0)


@pytest.fixture
def file(tmp_path):
    def write(text, name="trace.csv"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def ticks(values, gap=10):
    return json.dumps({"metadata": {"gap_seconds": gap}, "data": values})


def spans(trace):
    return list(zip(trace.starts.tolist(), trace.ends.tolist(), strict=True))


def made(*pairs, period, kind="held", name="made"):
    starts, ends = np.array(pairs, dtype=float).T
    return Trace(name=name, kind=kind, starts=starts, ends=ends, period_seconds=period)


def test_ticks_become_spans(file):
    trace = read_trace(file(ticks([0, 1, 1, 0, 2, 2])), "held")
    assert spans(trace) == [(10, 30), (40, 60)]
    assert (trace.period_seconds, trace.interruptions) == (60, 1)
    assert trace.availability == pytest.approx(4 / 6)
    assert any("starting up" in note for note in trace.notes)


def test_a_job_on_several_machines_has_capacity_only_when_all_are_there(file):
    assert spans(read_trace(file(ticks([1, 2, 3, 1, 2])), "held", nodes=2)) == [(10, 30), (40, 50)]


def test_events_that_add_and_remove_machines_become_spans_and_lives(file):
    path = file("0,add,a\n60000,add,b\n90000,remove,a\n90000,add,c\n120000,remove,b\n150000,remove,c\n")
    assert spans(read_trace(path, "held")) == [(0, 150)]
    assert spans(read_trace(path, "held", nodes=2)) == [(60, 120)]
    ended, alive = node_lives(path)
    assert sorted(ended.tolist()) == [60, 60, 90]
    assert alive.size == 0


def test_a_count_that_is_written_before_and_after_each_change_has_no_gaps(file):
    trace = read_trace(file("0,0\n100,0\n100,3\n250,3\n250,0\n300,0\n"), "held")
    assert spans(trace) == [(100, 250)]
    assert any("taken as s" in note for note in trace.notes)


@pytest.mark.parametrize(
    ("text", "unit", "seconds"),
    [("0,1\n1000000,1\n2000000,0\n", "ms", 2000), ("0.0,1\n0.5,0\n", "h", 1800), ("0,1\n600,0\n", "s", 600)],
    ids=["ms", "h", "s"],
)
def test_the_unit_of_times_is_found_out_and_said(file, text, unit, seconds):
    trace = read_trace(file(text), "available")
    assert trace.period_seconds == seconds
    assert any(f"taken as {unit}" in note for note in trace.notes)


def test_a_unit_that_is_given_is_not_guessed(file):
    trace = read_trace(file("0,1\n600,0\n"), "held", unit="ms")
    assert trace.period_seconds == pytest.approx(0.6)
    assert not any("taken as" in note for note in trace.notes)


def test_rows_that_go_back_in_time_are_left_out_and_counted(file):
    text = (
        "2021-12-10, 13:00:00, 5\n2021-12-10, 13:02:00, 5\n2021-12-10, 13:01:00, 0\n2021-12-10, 13:03:00, 0\n"
    )
    trace = read_trace(file(text, "polled.txt"), "held")
    assert spans(trace) == [(0, 180)]
    assert any("1 times it goes back in time: 1 rows are left out" in note for note in trace.notes)


def test_a_time_in_which_nobody_looked_is_said(file):
    text = "2021-12-10, 13:00:00, 5\n2021-12-10, 18:00:00, 5\n"
    assert any("5.0 h nobody looked" in note for note in read_trace(file(text), "held").notes)


def test_kinds_are_not_mixed_up_silently(file):
    probes = file(ticks([1, 0, 1]), "availability/zone.json")
    with pytest.raises(CostError, match="'available'"):
        read_trace(probes, "held")
    assert any("taken for the loss" in note for note in read_trace(probes, "available").notes)


def test_zones_of_different_kinds_do_not_stand_in_for_one_another():
    zones = [made((0, 50), period=100), made((50, 90), period=100, kind="available")]
    with pytest.raises(CostError, match="different kinds"):
        replay(DAY, Prices(hour=1.0), zones, starts=3, rng=np.random.default_rng(0))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        '{"metadata": {"gap_seconds": 0}, "data": [1]}',
        "a,b\n",
        "1,2,3,4\n",
        "5,1\n5,0\n",
        ticks([0, 0]),
        "2021-99-10, 13:00:00, 5\n",
        "0,1\nx\n",
    ],
    ids=[
        "empty",
        "other JSON",
        "no gap",
        "no numbers",
        "four fields",
        "one moment",
        "never there",
        "no date",
        "torn",
    ],
)
def test_what_is_no_trace_is_refused_with_its_name(file, text):
    path = file(text)
    with pytest.raises(CostError, match=r"trace\.csv"):
        read_trace(path, "held")


def test_a_file_that_is_not_there_and_a_kind_that_is_none_are_refused(tmp_path):
    with pytest.raises(CostError, match="cannot be read"):
        read_trace(tmp_path / "none.json", "held")
    with pytest.raises(CostError, match="no kind"):
        read_trace(tmp_path / "none.json", "hold")


def test_lives_that_were_seen_only_in_part_are_censored(file):
    lived, censored = read_trace(file(ticks([1, 0, 1, 1, 0, 1])), "held").lives()
    assert (lived.tolist(), censored.tolist()) == ([20], [10, 10])


def test_capacity_of_any_zone_is_counted_once():
    zones = [made((0, 50), (80, 90), period=100), made((40, 60), (85, 100), period=100)]
    assert any_of(zones) == pytest.approx(0.8)


def test_a_replay_lives_through_the_spans_of_the_trace_and_starts_over_at_its_end():
    trace = made((0, 1000), (1500, 2000), period=3000)
    plan = Plan(work_seconds=2500, interval_seconds=1e5, usable_notice=1.0)
    found = replay(plan, Prices(hour=1.0), [trace], starts=200, rng=np.random.default_rng(0))
    offsets = np.random.default_rng(0).uniform(0, 3000, 200)
    for start, wall in zip(offsets, found.wall, strict=True):
        assert wall == pytest.approx(walked(trace, start, 2500))
    assert found.billed_seconds == pytest.approx(2500)


def walked(trace, start, work):
    """Walk through a trace in its own order, round and round, until the work is done."""
    at, period = start, trace.period_seconds
    for lap in range(100):
        for first, last in spans(trace):
            begin, end = first + lap * period, last + lap * period
            if end <= at:
                continue
            at = max(at, begin)
            if end - at >= work:
                return at + work - start
            work, at = work - (end - at), end
    raise AssertionError


def test_a_span_over_the_joint_of_end_and_beginning_is_one_life():
    trace = made((0, 100), (200, 300), period=300)
    found = replay(
        Plan(work_seconds=150, interval_seconds=1e5),
        Prices(hour=1.0),
        [trace],
        starts=50,
        rng=np.random.default_rng(1),
    )
    assert (found.time[Row.UNIQUE] == 150).all()


def test_capacity_that_is_always_there_is_never_lost():
    found = replay(
        DAY, Prices(hour=1.0), [made((0, 300), period=300)], starts=3, rng=np.random.default_rng(1)
    )
    assert (found.interruptions == 0).all()


def test_a_notice_comes_before_the_recorded_end():
    trace = made((0, 1000), period=1100)
    plan = Plan(work_seconds=3000, interval_seconds=1e5, usable_notice=1.0, notice_seconds=100.0)
    found = replay(plan, Prices(hour=1.0), [trace], starts=20, rng=np.random.default_rng(2))
    whole = found.time[Row.NOTICE_TAIL] / found.interruptions
    assert whole.max() == pytest.approx(100)
    assert found.time[Row.UNIQUE] == pytest.approx(3000)


def test_a_machine_that_lives_shorter_than_its_notice_is_all_tail():
    trace = made((0, 1000), (1010, 1060), period=1100)
    plan = Plan(work_seconds=5000, interval_seconds=1e5, usable_notice=1.0, notice_seconds=100.0)
    found = replay(plan, Prices(hour=1.0), [trace], starts=20, rng=np.random.default_rng(2))
    assert min(amounts.min() for amounts in found.time.values()) >= 0
    assert found.time[Row.NOTICE_TAIL].sum() < 100 * found.interruptions.sum()


def test_a_machine_that_has_no_time_left_but_for_floating_point_is_not_handed_out():
    supply = Recorded([made((0, 50), (80, 90), period=100)], np.zeros(2), notice_seconds=0.0)
    machines = supply.next(np.arange(2), np.array([50 - 1e-9, 250 - 1e-9]), first=False)
    assert machines.wait == pytest.approx([30, 30])
    assert machines.life == pytest.approx([10, 10])


def test_with_several_zones_a_lost_machine_is_replaced_where_there_is_one():
    zones = [made((0, 500), period=1000), made((400, 900), period=1000)]
    plan = Plan(work_seconds=5000, interval_seconds=1e5, usable_notice=1.0)
    one, any_zone = (
        replay(plan, Prices(hour=1.0), some, starts=100, rng=np.random.default_rng(3))
        for some in (zones[:1], zones)
    )
    assert one.wall.mean() == pytest.approx(2 * 5000, rel=0.1)
    assert any_zone.wall.mean() == pytest.approx(5000 / 0.9, rel=0.05)


HELD = ("spot-traces", "preemption", "1-node", "aws-04-22-2023")
PROBED = ("spot-traces", "availability", "1-node", "aws-02-15-2023")
FIVE = {
    "us-west-2b, held": ((*HELD, "us-west-2b_v100_1.json"), "held"),
    "us-west-2c, held": ((*HELD, "us-west-2c_v100_1.json"), "held"),
    "us-east-1f, held": ((*HELD, "us-east-1f_v100_1.json"), "held"),
    "us-west-2a, probed": ((*PROBED, "us-west-2a_v100_1.json"), "available"),
    "us-east-2b, probed": ((*PROBED, "us-east-2b_v100_1.json"), "available"),
}


@pytest.mark.parametrize(("parts", "kind"), FIVE.values(), ids=FIVE)
def test_billed_hours_of_a_replay_are_within_three_percent_of_the_closed_form(parts, kind):
    trace = read_trace(shared(*parts), kind)
    life = trace.mean_life_seconds
    plan = dataclasses.replace(DAY, interval_seconds=daly_interval(30, life))
    found = replay(plan, Prices(hour=1.0), [trace], starts=300, rng=np.random.default_rng(0))
    said = extended(
        work_seconds=24 * HOUR,
        interval_seconds=plan.interval_seconds,
        save_seconds=30,
        restart_seconds=600,
        life_seconds=life,
    )
    assert found.billed_seconds.mean() == pytest.approx(said.billed_seconds, rel=0.03)
    assert sum(found.time.values()) == pytest.approx(found.wall, abs=1e-6)


def test_any_of_nine_zones_has_capacity_nearly_always():
    zones = read_zones(sorted(shared(*PROBED).glob("*.json")), "available")
    assert len(zones) == 9
    assert any_of(zones) == pytest.approx(0.992, abs=0.001)
    found = replay(DAY, Prices(hour=1.0), zones, starts=50, rng=np.random.default_rng(0))
    assert found.time[Row.CAPACITY_WAIT].mean() < 0.02 * found.wall.mean()


def test_bamboo_and_parcae_are_read_with_what_is_odd_about_them():
    ended, alive = node_lives(shared("bamboo", "traces", "p3-trace.csv"))
    assert ended.size == 167
    assert ended.mean() / HOUR == pytest.approx(1.46, abs=0.01)
    polled = read_trace(shared("bamboo", "traces", "gcloud", "v100x1-east1c.txt"), "available", nodes=60)
    assert any("15 times it goes back in time" in note for note in polled.notes)
    parcae = read_trace(shared("parcae", "aws", "traces", "p3.csv"), "held", nodes=16)
    assert parcae.period_seconds / HOUR == pytest.approx(11.37, abs=0.01)
    assert alive.size == 10
