"""Parking, the trace file, and what a process says about itself, without torch."""

from __future__ import annotations

import os
import threading
import time

import pytest

from samestep.probe import environment, site_folder, surroundings
from samestep.probe.parking import Parking
from samestep.probe.writer import TraceWriter
from samestep.trace import ORDERS_VARIABLE, EventRecord, Header, ParkPoint, State, StepRecord, read_trace


def header(**fields):
    return Header(attempt="a", argv=["train.py"], pid=7, parent_pid=1, **fields)


def test_a_parked_process_waits_for_the_go_file_and_stops_once(tmp_path):
    told = []
    parking = Parking(tmp_path, [ParkPoint("boundary", 8)], lambda name, point: told.append((name, point)))
    assert parking.expects("boundary", 8)
    assert parking.stop_at("boundary", 7, rank=2) is False
    thread = threading.Thread(target=parking.stop_at, args=("boundary", 8), kwargs={"rank": 2})
    thread.start()
    mark = tmp_path / "boundary-8.rank2.waiting"
    deadline = time.monotonic() + 20
    while not mark.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert mark.read_text() == str(os.getpid())
    assert thread.is_alive()
    (tmp_path / "boundary-8.go").touch()
    thread.join(20)
    assert told == [("parked", "boundary-8"), ("released", "boundary-8")]
    assert parking.stop_at("boundary", 8, rank=2) is False


def test_every_record_is_on_disk_as_soon_as_it_is_written(tmp_path):
    writer = TraceWriter(tmp_path, header(rank=3))
    writer.write(StepRecord(1, State()))
    assert writer.path.name == "trace-r3-7.jsonl"
    assert [step.index for step in read_trace(writer.path).steps] == [1]


def test_a_second_trace_of_the_same_process_id_gets_its_own_file(tmp_path):
    first, second = TraceWriter(tmp_path, header()), TraceWriter(tmp_path, header())
    assert first.path != second.path
    assert read_trace(first.path).header == read_trace(second.path).header


def test_a_rank_that_becomes_known_late_moves_the_trace_and_keeps_its_events(tmp_path):
    writer = TraceWriter(tmp_path, header())
    writer.write(EventRecord("read", 0, 1.0, {"path": "last.pt"}))
    writer.reopen(header(rank=1, world_size=2))
    (path,) = tmp_path.glob("trace-*.jsonl")
    trace = read_trace(path)
    assert (path.name, trace.header.world_size) == ("trace-r1-7.jsonl", 2)
    assert [event.name for event in trace.events] == ["read"]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "5"}, (1, 2)),
        ({"SLURM_PROCID": "5", "SLURM_NTASKS": "8"}, (5, 8)),
        ({"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4"}, (3, 4)),
        ({"RANK": "none"}, (0, 1)),
    ],
)
def test_rank_and_world_come_from_whichever_launcher_there_is(monkeypatch, variables, expected):
    for name in (*surroundings._RANK, *surroundings._WORLD_SIZE):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(surroundings.sys, "modules", {})
    assert surroundings.ranks() == expected


def test_the_environment_puts_the_probe_first_and_keeps_everything_else(tmp_path):
    base = {"PYTHONPATH": "/somewhere", "HOME": "/home/me"}
    made = environment(tmp_path / "orders.json", base)
    assert made["PYTHONPATH"].split(os.pathsep) == [str(site_folder()), "/somewhere"]
    assert made[ORDERS_VARIABLE] == str(tmp_path / "orders.json")
    assert made["HOME"] == "/home/me"
    assert base == {"PYTHONPATH": "/somewhere", "HOME": "/home/me"}
    assert [path.name for path in site_folder().glob("*.py")] == ["sitecustomize.py"]


def test_the_header_of_a_trace_holds_no_secret_of_the_command(monkeypatch):
    monkeypatch.setattr(surroundings.sys, "argv", ["train.py", "--hub_token", "s3cr3t", "--lr", "1"])
    assert surroundings.header("a", "xxh3").argv == ["train.py", "--hub_token", "***", "--lr", "1"]
