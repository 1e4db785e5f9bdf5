"""How much memory a snapshot may take is asked of the machine and of every control group the process is in."""

from __future__ import annotations

import pytest

from samestep.state import memory

MIB = 1 << 20


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Pretend that the process is in groups of a kind, and return a function that sets one's figures."""
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(memory, "_OWN", tmp_path / "own")

    def put(own, folder, limit, used, cached, *, names=("memory.max", "memory.current", "inactive_file")):
        (tmp_path / "own").write_text(own)
        place = tmp_path / "groups" / folder
        place.mkdir(parents=True, exist_ok=True)
        (place / names[0]).write_text(f"{limit}\n")
        (place / names[1]).write_text(f"{used}\n")
        (place / "memory.stat").write_text(f"anon 1\n{names[2]} {cached}\n")

    return put


def test_a_groups_limit_counts_and_what_it_caches_of_files_is_free(groups):
    groups("0::/job\n", "job", 100 * MIB, 70 * MIB, 20 * MIB)
    assert memory.free_bytes() == 50 * MIB


def test_the_limit_of_a_group_further_up_counts_too(groups):
    groups("0::/outer/job\n", "outer/job", "max", 70 * MIB, 0)
    groups("0::/outer/job\n", "outer", 90 * MIB, 80 * MIB, 0)
    assert memory.free_bytes() == 10 * MIB


def test_groups_of_the_first_kind_are_read_as_well(groups):
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    groups("8:pids:/\n4:cpu,memory:/job\n", "memory/job", 64 * MIB, 60 * MIB, 1 * MIB, names=names)
    assert memory.free_bytes() == 5 * MIB


def test_without_groups_the_machine_decides(groups, tmp_path):
    assert memory.free_bytes() > 0
    assert memory.fits(0)
    assert not memory.fits(1 << 60)
