"""The parts of the recorder that need no other process."""

from __future__ import annotations

import os

import msgspec
import pytest

from samestep.crash.operations import Header, Kind, Operation
from samestep.crash.recorder import Fault, Order, StopAt, counted, supervisor_command
from samestep.crash.recorder.growth import Growth
from samestep.crash.recorder.inodes import Inodes
from samestep.crash.recorder.log import Log, WorldStopsError
from samestep.crash.recorder.paths import Place, Roots, UnresolvedError, locate
from samestep.crash.recording import Recording, RecordingWriter, SpillLimitError


def operation(kind=Kind.WRITE, path="/out/a", **fields):
    return Operation(index=0, kind=kind, path=path, **fields)


def writer(folder, **options):
    return RecordingWriter(folder, Header(roots=["/out"], command=["x"], tier="notify"), **options)


def test_an_order_survives_the_command_line():
    order = Order(("/out",), "/rec", 5, StopAt(3, 1), (Fault("EIO", (Kind.SYNC,), "*.pt", 2, 4),))
    command = supervisor_command(order)
    assert msgspec.json.decode(command[-1], type=Order) == order
    assert command[1] == "-I"


def test_derived_operations_and_marks_do_not_count():
    assert counted(operation())
    assert not counted(operation(derived=True))
    assert not counted(operation(Kind.MARK))


def test_the_world_stops_when_the_rank_has_done_its_share(tmp_path):
    log = Log(writer(tmp_path), Order(("/out",), "", stop_at=StopAt(1, rank=1)))
    for rank in (0, 0, 1, 0):
        assert log.objection(operation(rank=rank)) == 0
        log.add(operation(rank=rank))
    assert log.objection(operation(rank=0)) == 0
    with pytest.raises(WorldStopsError):
        log.objection(operation(rank=1))


def test_faults_strike_where_and_as_often_as_ordered(tmp_path):
    fault = Fault("ENOSPC", (Kind.WRITE,), "*.bin", first=1, count=2)
    log = Log(writer(tmp_path), Order(("/out",), "", faults=(fault,)))
    paths = ["/a.bin", "/a.bin", "/a.txt", "/b.bin", "/c.bin"]
    struck = []
    for path in paths:
        one = operation(path=path)
        struck.append(log.objection(one))
        assert one.injected == bool(struck[-1])
        log.add(one)
    assert struck == [0, 28, 0, 28, 0]


def test_bytes_are_kept_once_however_they_come(tmp_path):
    kept = writer(tmp_path)
    first = kept.keep(b"abcdef")
    assert kept.keep_parts(iter([b"abc", memoryview(b"def")]), 6) == first
    second = kept.keep_parts(iter([b"xy", b"z"]), 3)
    assert kept.keep(b"xyz") == second == 6
    kept.close(complete=True)
    assert (tmp_path / "bytes.bin").read_bytes() == b"abcdefxyz"


def test_the_limit_leaves_nothing_half_kept(tmp_path):
    kept = writer(tmp_path, spill_bytes=10)
    kept.keep(b"12345")
    with pytest.raises(SpillLimitError, match="exceed"):
        kept.keep(b"123456")
    with pytest.raises(SpillLimitError):
        kept.keep_parts(iter([b"123456"]), 6)
    assert kept.keep_parts(iter([b"ab", b"cde"]), 5) == 5


def test_parts_that_break_off_are_taken_back(tmp_path):
    def breaking():
        yield b"some"
        raise ProcessLookupError

    kept = writer(tmp_path)
    with pytest.raises(ProcessLookupError):
        kept.keep_parts(breaking(), 9)
    at = kept.keep(b"whole")
    kept.close(complete=True)
    with Recording.open(tmp_path) as recording:
        assert recording.read(at, 5) == b"whole"


def test_roots_hold_themselves_and_what_is_below():
    roots = Roots(["/nowhere/out"])
    assert roots.hold(b"/nowhere/out")
    assert roots.hold(b"/nowhere/out/a")
    assert not roots.hold(b"/nowhere/output")
    assert not roots.hold(b"/nowhere")


def test_a_root_is_known_by_where_its_links_lead(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert Roots([str(tmp_path / "link" / "out")]).paths == [os.fsencode(tmp_path / "real" / "out")]


def test_places_follow_links_only_when_asked(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "a").symlink_to("folder/b")
    (tmp_path / "b").symlink_to("a")
    with Place(os.fsencode(tmp_path), b"b") as place:
        assert place.path == os.fsencode(tmp_path / "b")
        with place.followed() as end:
            assert end.path == os.fsencode(tmp_path / "folder" / "b")
            assert end.look() is None


def test_links_in_a_circle_are_an_error(tmp_path):
    (tmp_path / "a").symlink_to("a")
    with Place(os.fsencode(tmp_path), b"a") as place, pytest.raises(UnresolvedError):
        place.followed()


@pytest.mark.parametrize(
    ("path", "number"), [(b"/no/such/x", 2), (b"", 0), (b"/", 0), (b"//", 0), (b"/etc/passwd/x", 20)]
)
def test_paths_that_lead_nowhere_say_why(path, number):
    with pytest.raises(UnresolvedError) as caught:
        locate(os.getpid(), os.getpid(), -100, path)
    assert caught.value.number == number


def test_numbers_of_files_outlive_their_names():
    inodes = Inodes()
    first = inodes.number((1, 10), "/out/a")
    assert inodes.number((1, 10), "/out/b") == first
    assert inodes.fresh((1, 10), "/out/c") != first
    folder = inodes.number((1, 11), "/out/tmp")
    inner = inodes.number((1, 12), "/out/tmp/x")
    inodes.moved(folder, "/out/final")
    assert inodes.path(inner) == "/out/final/x"


def test_a_file_that_is_shorter_than_written_is_noticed(tmp_path):
    growth = Growth()
    growth.expect(1, pid=5, tid=5, size=100)
    assert not growth.fell_short(1, 6, 50)
    assert growth.fell_short(1, 5, 50)
    assert not growth.fell_short(1, 5, 50)
    growth.expect(1, pid=5, tid=5, size=100)
    growth.resize(1)
    assert not growth.fell_short(1, 5, 50)
