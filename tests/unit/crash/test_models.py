"""What each persistence model allows for the classic ways to replace a file."""

from __future__ import annotations

import pytest

from crash_scripts import Script, empty, holds, states_of
from samestep.crash.models import MODELS
from samestep.crash.operations import Kind
from samestep.crash.replay import replay

PAGE = 4096
OLD, NEW = b"o" * 3 * PAGE, b"n" * 4 * PAGE


def script_with_old_file():
    return Script().mark(1).file_of("model.pt", OLD).mark(2)


def careful(*, temp=True, fsync=True, rename=True, folder=True):
    script = script_with_old_file()
    name = ".model.pt.tmp" if temp else "model.pt"
    if temp:
        script.create(name)
    else:
        script.open(name).truncate(name)
    script.write(name, NEW[:PAGE], 0).write(name, NEW[PAGE:], PAGE)
    if fsync:
        script.sync(name)
    script.close(name)
    if temp and rename:
        script.rename(name, "model.pt")
    if folder:
        script.sync("")
    return script


def outcomes(script, model):
    """Whether a state has neither the old nor the new file, and whether the old one may be found after the end."""
    states = states_of(script, model).states
    torn = {state.name for state in states if holds(state, "model.pt") not in {OLD, NEW}}
    lost = {state.name for state in states if model in state.lasting and holds(state, "model.pt") != NEW}
    return bool(torn), bool(lost)


@pytest.mark.parametrize("model", MODELS)
def test_temp_fsync_rename_fsync_of_folder_is_safe_under_every_model(model):
    assert outcomes(careful(), model) == (False, False)


@pytest.mark.parametrize("model", MODELS)
def test_without_a_temporary_name_every_model_finds_a_torn_file(model):
    assert outcomes(careful(temp=False), model)[0]


@pytest.mark.parametrize("model", MODELS)
def test_without_fsync_a_rename_over_an_old_file_is_unsafe_on_xfs_only(model):
    torn, _ = outcomes(careful(fsync=False), model)
    assert torn == (model == "power-xfs")


@pytest.mark.parametrize("model", MODELS)
def test_without_fsync_of_the_folder_the_rename_may_be_undone_by_power_loss_only(model):
    torn, lost = outcomes(careful(folder=False), model)
    assert not torn
    assert lost == (model in {"power-ext4", "power-xfs", "posix-worst"})


@pytest.mark.parametrize("model", MODELS)
def test_without_the_rename_the_new_file_never_comes_to_be(model):
    states = states_of(careful(rename=False), model).states
    assert {holds(state, "model.pt") for state in states} == {OLD}


def test_without_fsync_a_rename_to_a_new_name_is_unsafe_on_ext4_too():
    script = (
        Script().mark(1).create("a.tmp").write("a.tmp", NEW).close("a.tmp").rename("a.tmp", "a.pt").sync("")
    )
    found = {
        state.way: holds(state, "a.pt")
        for state in states_of(script, "power-ext4").states
        if state.after == 4
    }
    assert found == {
        "": NEW,
        "empty": b"",
        "half": NEW[: 2 * PAGE],
        "last-page-missing": NEW[: 3 * PAGE],
        "zeros": bytes(len(NEW)),
    }


def test_kill_gives_every_prefix_and_the_write_in_flight_torn():
    script = Script().mark(1).create("a.pt").write("a.pt", NEW).close("a.pt").unlink("a.pt")
    states = states_of(script, "kill").states
    assert {state.name: holds(state, "a.pt") for state in states} == {
        "save-1/kill/start": None,
        "save-1/kill/op-000": b"",
        "save-1/kill/op-001/a.pt-torn-first-byte": NEW[:1],
        "save-1/kill/op-001/a.pt-torn-half": NEW[: 2 * PAGE],
        "save-1/kill/op-001/a.pt-torn-last-page": NEW[: 3 * PAGE],
        "save-1/kill/op-001": NEW,
    }
    assert [state.after for state in states] == [0, 1, 1, 1, 1, 2]
    assert states[0].also == ("save-1/kill/op-003",)


def test_machine_lost_gives_every_prefix_and_no_torn_write():
    script = Script().mark(1).create("a.pt").write("a.pt", NEW[:9]).write("a.pt", NEW[9:]).close("a.pt")
    found = [holds(state, "a.pt") for state in states_of(script, "machine-lost").states]
    assert found == [None, b"", NEW[:9], NEW]


def test_a_file_whose_size_was_set_comes_back_in_zeros_of_full_length():
    script = Script().mark(1).create("a.st").truncate("a.st", len(NEW)).write("a.st", NEW, 0).close("a.st")
    states = states_of(script, "power-ext4").states
    damaged = {state.way: holds(state, "a.st") for state in states if state.way}
    nothing = bytes(PAGE)
    assert damaged == {"half": NEW[: 2 * PAGE] + 2 * nothing, "last-page-missing": NEW[: 3 * PAGE] + nothing}
    assert bytes(len(NEW)) in [holds(state, "a.st") for state in states]


def test_a_file_overwritten_in_place_may_keep_old_pages():
    script = script_with_old_file().open("model.pt").write("model.pt", NEW[: 2 * PAGE], 0).close("model.pt")
    states = states_of(script, "power-xfs").states
    whole = NEW[: 2 * PAGE] + OLD[2 * PAGE :]
    half = NEW[:PAGE] + OLD[PAGE:]
    assert [holds(state, "model.pt") for state in states] == [OLD, whole, half]


def test_an_append_log_loses_its_unsynced_tail_only():
    script = (
        Script().mark(1).create("steps.db").write("steps.db", b"a" * PAGE).sync("steps.db").sync("").mark(2)
    )
    script.open("steps.db").write("steps.db", b"b" * 2 * PAGE).close("steps.db")
    found = {holds(state, "steps.db") for state in states_of(script, "power-ext4").states}
    tails = (b"", b"b" * PAGE, b"b" * 2 * PAGE, bytes(2 * PAGE))
    assert found == {b"a" * PAGE + tail for tail in tails}


def rewritten():
    return (
        script_with_old_file().open("model.pt").truncate("model.pt").write("model.pt", NEW).close("model.pt")
    )


@pytest.mark.parametrize("model", ["power-ext4", "power-xfs"])
def test_only_ext4_writes_a_truncated_and_rewritten_file_back_when_it_is_closed(model):
    script = rewritten().mkdir("done")
    after = [state for state in states_of(script, model).states if state.image.find("/out/done")]
    assert all(holds(state, "model.pt") == NEW for state in after) == (model == "power-ext4")


def test_what_ext4_writes_back_with_a_rename_may_be_lost_with_that_rename_after_the_save_returned():
    script = Script().mark(1).file_of("a.pt", OLD).sync("a.pt").sync("").mark(2)
    script.create("a.tmp").write("a.tmp", NEW).close("a.tmp").rename("a.tmp", "a.pt")
    state = next(s for s in states_of(script, "power-ext4").states if s.way == "half")
    assert (holds(state, "a.pt"), holds(state, "a.tmp")) == (OLD, NEW[: 2 * PAGE])
    assert state.lasting == ("power-ext4",)


def test_a_cut_before_the_close_loses_a_rewritten_file_on_ext4_too():
    assert b"" in {holds(state, "model.pt") for state in states_of(rewritten(), "power-ext4").states}


def test_nfs_keeps_what_was_closed_and_may_lose_what_was_not():
    script = Script().mark(1).file_of("a.pt", NEW).create("b.pt").write("b.pt", NEW).rename("b.pt", "c.pt")
    states = states_of(script, "nfs").states
    assert all(holds(state, "a.pt") == NEW for state in states if holds(state, "b.pt") is not None)
    assert {holds(state, "c.pt") for state in states} == {None, b"", NEW[: 2 * PAGE], NEW[: 3 * PAGE], NEW}


def test_posix_worst_loses_one_name_and_keeps_later_ones():
    script = Script().mark(1).file_of("a.pt", b"a").file_of("b.pt", b"b").unlink("a.pt")
    states = states_of(script, "posix-worst")
    only_b = states.state("save-1/posix-worst/op-003/without-op-000-create")
    assert (holds(only_b, "a.pt"), holds(only_b, "b.pt")) == (None, b"")
    undone = states.state("save-1/posix-worst/op-006/without-op-006-unlink")
    assert (holds(undone, "a.pt"), holds(undone, "b.pt")) == (b"a", b"b")
    assert undone.lasting == ("posix-worst",)


def test_posix_worst_keeps_a_name_whose_folder_was_synced():
    script = Script().mark(1).file_of("a.pt", b"a").sync("").file_of("b.pt", b"b")
    late = [state for state in states_of(script, "posix-worst").states if state.after >= 5]
    assert late
    assert all(holds(state, "a.pt") == b"a" for state in late)


def test_an_fsync_of_the_file_does_not_keep_its_name_under_posix_worst():
    script = Script().mark(1).file_of("a.pt", b"a", sync=True).mkdir("b")
    names = [state.name for state in states_of(script, "posix-worst").states]
    assert "save-1/posix-worst/op-004/without-op-000-create" in names


def test_several_unsynced_files_are_damaged_one_by_one_all_together_and_the_newer_ones():
    # what the last file adds: states in which it has no data are already those of an earlier moment
    script = Script().mark(1)
    for name in ("a.pt", "b.pt", "c.pt"):
        script.file_of(name, name[:1].encode() * 2 * PAGE)
    last = [state for state in states_of(script, "power-xfs").states if state.after == 8]
    sizes = {
        (state.way, state.file): tuple(len(holds(state, f"{name}.pt")) // PAGE for name in "abc")
        for state in last
    }
    assert sizes == {
        ("", ""): (2, 2, 2),
        ("empty", "a.pt"): (0, 2, 2),
        ("half", "a.pt"): (1, 2, 2),
        ("empty", "b.pt"): (2, 0, 2),
        ("half", "b.pt"): (2, 1, 2),
        ("half", "c.pt"): (2, 2, 1),
        ("all-half", ""): (1, 1, 1),
    }


def test_the_kernel_may_have_written_back_the_older_files_only():
    script = Script().mark(1)
    for name in "abcd":
        script.file_of(f"{name}.pt", name.encode() * 2 * PAGE)
    script.mkdir("done")
    found = {
        state.file: tuple(len(holds(state, f"{name}.pt")) // PAGE for name in "abcd")
        for state in states_of(script, "power-ext4").states
        if state.way == "newer-lost" and state.image.find("/out/done")
    }
    assert found == {"a.pt": (2, 0, 0, 0), "b.pt": (2, 2, 0, 0)}


def fate(content):
    return "zeros" if content.strip(b"\0") != content else "whole" if content else "empty"


def test_ext4_may_have_sizes_of_files_on_disk_whose_data_is_still_on_its_way():
    # seen: older files whole, the next ones in zeros of full length, the newest empty, until the next commit
    script = Script().mark(1)
    for name in "abc":
        script.file_of(f"{name}.pt", name.encode() * 2 * PAGE)
    found = {
        tuple(fate(holds(state, f"{name}.pt")) for name in "abc")
        for state in states_of(script, "power-ext4").states
        if holds(state, "c.pt") is not None and state.lasting
    }
    whole, zeros, empty = "whole", "zeros", "empty"
    assert found >= {
        (zeros, whole, whole), (whole, zeros, whole), (whole, whole, zeros),
        (zeros, empty, empty), (zeros, zeros, empty), (zeros, zeros, zeros),
        (whole, zeros, empty), (whole, zeros, zeros),
    }  # fmt: skip


@pytest.mark.parametrize("model", ["power-xfs", "nfs"])
def test_elsewhere_a_size_never_comes_before_the_data(model):
    script = Script().mark(1).create("a.pt").write("a.pt", NEW).close("a.pt")
    assert bytes(len(NEW)) not in {holds(state, "a.pt") for state in states_of(script, model).states}


def test_a_synced_file_stands_among_others_that_lost_everything():
    script = Script().mark(1).file_of("a.pt", NEW).file_of("b.pt", NEW).create("c.tmp").write("c.tmp", NEW)
    script.sync("c.tmp").rename("c.tmp", "c.pt")
    states = states_of(script, "power-ext4").states
    assert (b"", b"", NEW) in {tuple(holds(s, name) for name in ("a.pt", "b.pt", "c.tmp")) for s in states}


def test_metadata_that_was_synced_while_still_empty_can_be_lost():
    script = Script().mark(1).file_of("__0_0.distcp", NEW, sync=True)
    script.create(".metadata.tmp").sync(".metadata.tmp").write(".metadata.tmp", b"m" * 100).close(
        ".metadata.tmp"
    )
    script.rename(".metadata.tmp", ".metadata")
    empty_commit = [
        state
        for state in states_of(script, "kill", "power-ext4").states
        if holds(state, ".metadata") == b"" and holds(state, "__0_0.distcp") == NEW
    ]
    assert [state.lasting for state in empty_commit] == [("power-ext4",)]
    assert empty_commit[0].model == "power-ext4"


def test_fdatasync_does_not_bring_a_later_rename():
    script = Script().mark(1).create("a.tmp").write("a.tmp", NEW).sync("a.tmp").rename("a.tmp", "a.pt")
    names = [state.name for state in states_of(script, "power-ext4").states if "power-ext4" in state.lasting]
    before = [
        state
        for state in states_of(script.sync("a.pt", Kind.SYNC_DATA), "power-ext4").states
        if state.lasting
    ]
    assert len(names) == len(before) == 2
    after = [state for state in states_of(script.sync("a.pt"), "power-ext4").states if state.lasting]
    assert [holds(state, "a.pt") for state in after] == [NEW]


@pytest.mark.parametrize(("synced", "kept"), [("", MODELS), ("other", {"power-ext4", "power-xfs"})])
@pytest.mark.parametrize("model", ["power-ext4", "power-xfs", "posix-worst"])
def test_an_fsync_of_the_folder_keeps_the_names_before_it_for_good_and_none_after_it(model, synced, kept):
    script = Script().mark(1).mkdir("other").sync("")
    for name in ("a", "b"):
        script.file_of(f"{name}.tmp", NEW, sync=True)
    script.rename("a.tmp", "a.pt").sync(synced).rename("b.tmp", "b.pt")
    lasting = [state for state in states_of(script, model).states if model in state.lasting]
    assert {holds(state, "b.pt") for state in lasting} == {None, NEW}
    # a journal brings all names before an fsync of anything, a storage without one those of the folder only
    assert {holds(state, "a.pt") for state in lasting} == ({NEW} if model in kept else {None, NEW})


def test_a_sync_of_everything_makes_everything_durable():
    script = Script().mark(1).file_of("a.pt", NEW).file_of("b.pt", NEW).add(Kind.SYNC_ALL, None)
    for model in MODELS:
        lasting = [state for state in states_of(script, model).states if state.lasting]
        assert [(holds(state, "a.pt"), holds(state, "b.pt")) for state in lasting] == [(NEW, NEW)]


def test_hard_links_share_what_is_written_to_either_name():
    script = (
        Script().mark(1).file_of("a.pt", b"one").link("a.pt", "b.pt").open("a.pt").write("a.pt", b"ONE", 0)
    )
    final = states_of(script, "kill").end
    assert (final.file("a.pt").read(), final.file("b.pt").read()) == (b"ONE", b"ONE")


def test_a_write_through_one_link_is_lost_under_both_names():
    script = Script().mark(1).file_of("a.pt", b"one", sync=True).link("a.pt", "b.pt").sync("").mark(2)
    script.open("a.pt").write("a.pt", b"ONE", 0)
    assert {(holds(s, "a.pt"), holds(s, "b.pt")) for s in states_of(script, "power-ext4").states} == {
        (b"one", b"one"),
        (b"ONE", b"ONE"),
    }


def test_a_renamed_folder_takes_its_unsynced_files_along():
    script = Script().mark(1).mkdir("tmp").file_of("tmp/a.pt", NEW).rename("tmp", "final")
    found = {holds(state, "final/a.pt") for state in states_of(script, "power-ext4").states}
    assert {None, b"", NEW} <= found


def test_a_file_removed_while_open_takes_writes_that_nobody_finds():
    script = Script().mark(1).create("a.pt").write("a.pt", b"1")
    inode = script.inode("a.pt")
    script.unlink("a.pt")
    script.inodes["/out/a.pt"] = inode
    script.write("a.pt", b"2").close("a.pt")
    states = states_of(script, "kill", "nfs", "power-xfs")
    assert states.end.file("a.pt") is None
    assert {holds(state, "a.pt") for state in states.states} == {None, b"", b"1"}


def test_an_unnamed_file_comes_to_be_with_its_link():
    script = Script().mark(1).unnamed().write(None, NEW).link(None, "a.pt")
    assert {holds(state, "a.pt") for state in states_of(script, "kill").states} == {None, NEW}
    assert b"" in {holds(state, "a.pt") for state in states_of(script, "power-ext4").states}


def test_exchanged_names_change_places():
    script = Script().mark(1).file_of("a", b"a").file_of("b", b"b").rename("a", "b", mode=2)
    end = replay(script.recording(), empty())
    assert (end.file("a").read(), end.file("b").read()) == (b"b", b"a")


def test_a_failed_operation_changes_nothing():
    script = Script().mark(1).file_of("a.pt", b"a")
    script.add(Kind.RENAME, "a.pt", target="/other/a.pt", inode=1, errno=18)
    assert replay(script.recording(), empty()).file("a.pt").read() == b"a"
