"""Progress of transfers and tables, on a terminal and elsewhere."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from samestep.cli import transfer
from samestep.cli.transfer import Transfer, counted
from samestep.contract.sizes import readable_bytes
from samestep.report.tables import Table


class Clock:
    """Stands in for the clock; every look takes a second."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(transfer, "time", clock)
    return clock


def test_without_a_terminal_a_line_comes_every_ten_seconds_with_rate_and_rest(capsys, clock):
    with Transfer("restoring", 100 << 20) as shown:
        for _ in range(4):
            clock.now += 5
            shown.report(10 << 20)
    assert capsys.readouterr().err.splitlines() == [
        "restoring: 20.0 MiB of 100.0 MiB, 2.0 MiB/s, 40 s left",
        "restoring: 40.0 MiB of 100.0 MiB, 2.0 MiB/s, 30 s left",
        "restoring: 40.0 MiB in 20.0 s, 2.0 MiB/s",
    ]


def test_without_a_total_no_rest_is_invented(capsys, clock):
    with Transfer("sealing") as shown:
        clock.now += 10
        shown.report(10 << 20)
    assert capsys.readouterr().err.startswith("sealing: 10.0 MiB, 1.0 MiB/s\n")


def test_a_new_total_begins_anew(capsys, clock):
    with Transfer("restoring") as shown:
        shown.report(5 << 20)
        shown.expect(10 << 20)
        clock.now += 10
        shown.report(1 << 20)
    assert "restoring: 1.0 MiB of 10.0 MiB" in capsys.readouterr().err


def fail_half_way():
    with Transfer("restoring", 10) as shown:
        shown.report(5)
        raise ValueError("x")


def test_a_transfer_that_failed_gives_no_summary(capsys):
    with pytest.raises(ValueError, match="x"):
        fail_half_way()
    assert capsys.readouterr().err == ""


def test_a_place_reports_what_is_read_and_is_otherwise_itself():
    class Place:
        url = "somewhere"

        def read_into(self, key, offset, target):
            target[:] = b"x" * len(target)

    seen, target = [], bytearray(3)
    place = counted(Place(), seen.append)
    place.read_into("key", 0, memoryview(target))
    assert (bytes(target), seen, place.url) == (b"xxx", [3], "somewhere")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (1536 << 20, "1.5 GiB"),
        (1 << 60, "1024.0 PiB"),
    ],
)
def test_sizes_are_read_in_the_unit_that_suits_them(size, text):
    assert readable_bytes(size) == text


def test_a_table_is_aligned_and_leaves_no_blanks_at_the_end():
    table = Table(("name", "size", ""), [("a", "10", ""), ("longer", "9", "note")], frozenset({1}))
    assert table.text() == "name    size\na         10\nlonger     9  note\n"


def on_a_terminal(*words, folder):
    """Run a command whose output is a terminal, and return what it printed there."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "samestep", *words],
        cwd=folder,
        stdout=follower,
        stderr=follower,
        env=os.environ,
    )
    os.close(follower)
    shown = b""
    while chunk := _read(leader):
        shown += chunk
    os.close(leader)
    assert process.wait(60) == 0
    return shown.decode()


def _read(descriptor):
    try:
        return os.read(descriptor, 65536)
    except OSError:  # the other end is closed
        return b""


def test_a_terminal_gets_a_drawn_table_and_a_bar(tmp_path):
    from forging import Forge

    Forge().trainer_checkpoint(tmp_path / "checkpoint-3", 3)
    sealed = on_a_terminal("bundle", "seal", "checkpoint-3", "--run", "store", folder=tmp_path)
    assert "sealing" in sealed
    assert "\x1b[?25l" in sealed  # a live display hides the cursor
    assert "──" in on_a_terminal("bundle", "ls", "store", folder=tmp_path)
