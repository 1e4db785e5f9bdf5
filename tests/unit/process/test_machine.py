"""Machines on the fixed path, one at a time: everything that needs no process."""

import os
from pathlib import Path

import pytest

from samestep.errors import MachineError
from samestep.process import Site, tree_digest


@pytest.fixture
def project(tmp_path):
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "train.py").write_text("pass\n")
    (folder / "data" / "tokens.bin").write_bytes(b"tokens")
    return folder


def listing(folder):
    return sorted(entry.name for entry in folder.iterdir())


def site(project, **options):
    return Site.create(project, sequential=True, **options)


def test_a_machine_starts_with_the_project_and_nothing_else(project):
    with site(project) as here:
        machine = here.machine("control-1")
        assert tree_digest(machine.project) == tree_digest(project)
        for folder in (
            machine.out,
            machine.folder / "home",
            machine.folder / "tmp",
            machine.folder / "cache",
        ):
            assert list(folder.iterdir()) == []
        assert (machine.seat_out, machine.seat_project) == (here.seat / "out", here.seat / "project")


def test_a_lost_machine_is_gone_and_the_next_has_the_same_paths(project):
    with site(project) as here:
        first = here.machine("first")
        (first.folder / "home" / "moments.pt").touch()
        first.destroy()
        assert not first.folder.exists()
        second = here.machine("second")
        assert second.seat_out == first.seat_out
        assert list((second.folder / "home").iterdir()) == []


def test_a_retired_machine_is_gone_and_leaves_nothing_to_the_next_but_an_untouched_copy(project):
    with site(project) as here:
        first = here.machine("first")
        inode = (first.project / "train.py").stat().st_ino
        (first.project / "side.pt").write_bytes(b"lost")
        (first.folder / "home" / "moments.pt").touch()
        first.retire()
        assert not first.folder.exists()
        second = here.machine("second")
        assert (second.project / "train.py").stat().st_ino == inode
        assert tree_digest(second.project) == tree_digest(project)
        assert list((second.folder / "home").iterdir()) == []


def test_one_at_a_time(project):
    with site(project) as here:
        here.machine("first")
        assert not here.parallel
        with pytest.raises(MachineError, match="second has to wait: first"):
            here.machine("second")


def test_only_the_durable_folder_is_carried_over(project, tmp_path):
    with site(project) as here:
        first = here.machine("first")
        (first.out / "step-4.pt").write_bytes(b"state")
        os.utime(first.out / "step-4.pt", ns=(1, 2))
        (first.project / "side.pt").write_bytes(b"lost")
        first.snapshot(tmp_path / "cut")
        first.destroy()
        second = here.machine("second")
        (second.out / "stray").touch()
        second.place(tmp_path / "cut")
        assert listing(second.out) == ["step-4.pt"]
        assert (second.out / "step-4.pt").stat().st_mtime_ns == 2
        assert not (second.project / "side.pt").exists()
    assert (tmp_path / "cut" / "step-4.pt").read_bytes() == b"state"


def test_a_fixed_output_folder_lies_in_the_copy_and_starts_empty(project, tmp_path):
    (project / "outputs").mkdir()
    (project / "outputs" / "old.pt").touch()
    with site(project, durable="outputs") as here:
        machine = here.machine("first")
        assert machine.seat_out == here.seat / "project" / "outputs"
        assert list(machine.out.iterdir()) == []
        (machine.out / "new.pt").touch()
        machine.snapshot(tmp_path / "cut")
    assert listing(tmp_path / "cut") == ["new.pt"]
    assert listing(project / "outputs") == ["old.pt"]


def test_a_command_that_writes_beside_its_scripts_carries_the_whole_copy(project, tmp_path):
    with site(project, durable=".") as here:
        first = here.machine("first")
        (first.out / "checkpoint.pt").write_bytes(b"state")
        first.snapshot(tmp_path / "cut")
        first.destroy()
        second = here.machine("second")
        second.place(tmp_path / "cut")
        assert listing(second.project) == ["checkpoint.pt", "data", "train.py"]


def test_an_output_folder_that_the_command_removed_is_an_empty_disk_state(project, tmp_path):
    with site(project) as here:
        machine = here.machine("first")
        machine.out.rmdir()
        machine.snapshot(tmp_path / "cut")
        machine.place(tmp_path / "cut")
        assert list((tmp_path / "cut").iterdir()) == list(machine.out.iterdir()) == []


def test_inputs_are_shared_and_a_write_to_them_is_noticed(project):
    with site(project, inputs=["data"]) as here:
        machine = here.machine("first")
        assert (machine.project / "data" / "tokens.bin").read_bytes() == b"tokens"
        assert here.changed_inputs() == []
        (machine.project / "data" / "index.cache").touch()
        assert here.changed_inputs() == [str(project / "data" / "index.cache")]


def test_the_projects_environment_can_be_named_by_a_relative_path(project):
    (project / ".venv").mkdir()
    (project / ".venv" / "pyvenv.cfg").touch()
    with site(project) as here:
        assert (here.machine("first").project / ".venv").resolve() == (project / ".venv").resolve()


def test_machines_kept_inside_the_project_do_not_copy_themselves(project):
    with site(project, base=project / "scratch") as here:
        assert not (here.machine("first").project / "scratch").exists()


@pytest.mark.parametrize("place", [None, "mine"], ids=["temporary", "given"])
def test_nothing_is_left_where_machines_were(project, tmp_path, place):
    base = tmp_path / place if place else None
    with site(project, base=base) as here, site(project, base=base) as other:
        here.machine("first")
        other.machine("first")
        assert here.base != other.base
    assert not here.base.exists()
    assert base is None or list(base.iterdir()) == []


def test_a_machine_that_could_not_be_prepared_leaves_nothing(project):
    (project / "large.bin").touch()
    os.truncate(project / "large.bin", 3 << 30)
    with site(project) as here:
        with pytest.raises(MachineError, match=r"large\.bin"):
            here.machine("first")
        assert not here.seat.exists()
        (project / "large.bin").unlink()
        here.machine("first")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": ["nothing"]}, "input .*nothing does not exist"),
        ({"durable": "train.py"}, "is a file"),
        ({"durable": "../elsewhere"}, "leads out of"),
        ({"durable": "/somewhere/else"}, "cannot be given to each attempt"),
        ({"base": Path("/proc/machines")}, "no machines can be prepared"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_runs(project, options, message):
    with pytest.raises(MachineError, match=message):
        site(project, **options)


def test_a_missing_project_is_said(tmp_path):
    with pytest.raises(MachineError, match="does not exist"):
        site(tmp_path / "typo")
