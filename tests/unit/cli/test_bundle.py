"""``samestep bundle``: every verb as a user types it, what it prints, and how it exits."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from forging import Forge
from samestep.bundle.carrying import read_carried
from samestep.bundle.decisions import Decision
from samestep.bundle.errors import AllDamaged, StoreError
from samestep.bundle.sealing import seal
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.storage.opening import open_storage
from samestep.bundle.store import Store
from samestep.bundle.watching import Watcher
from samestep.cli.main import cli
from samestep.errors import ExitCode, SamestepError, UsageError
from samestep.journal import read_journal


class Ran:
    """What a command printed, and its exit code."""

    def __init__(self, result):
        self.out, self.err = result.stdout, result.stderr
        code = result.return_value
        self.code = int(code) if isinstance(code, int) else 0

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def lines(self):
        return self.out.splitlines()


def run(*words):
    """Run the verb; what it refuses comes out as the error that it is."""
    done = CliRunner().invoke(cli, ["bundle", *map(str, words)], standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return Ran(done)


def exit_code_of(*words):
    """Return how the command line would exit."""
    try:
        return run(*words).code
    except SamestepError as error:
        return int(error.exit_code)


@pytest.fixture
def forge():
    return Forge()


@pytest.fixture
def here(tmp_path, monkeypatch, forge):
    """A folder with two Trainer checkpoints."""
    monkeypatch.chdir(tmp_path)
    for step in (240, 480):
        forge.trainer_checkpoint(tmp_path / "out" / f"checkpoint-{step}", step)
    return tmp_path


@pytest.fixture
def store(here):
    """A store with both of them."""
    for step in (240, 480):
        run("seal", f"out/checkpoint-{step}", "--run", "store")
    return here / "store"


def damage(store, bundle, name="trainer_state.json"):
    path = store / "bundles" / bundle / name
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def ids(store):
    return [one["id"] for one in run("ls", store, "--json").json["bundles"]]


def test_seal_makes_the_root_and_says_what_was_new(here):
    first = run("seal", "out/checkpoint-240", "--run", "store")
    assert "made the root of r-" in first.err
    assert re.search(
        r"^b-\S+  step 240  2\.\d KiB, 2\.\d KiB of it new  from out/checkpoint-240$", first.out, re.MULTILINE
    )
    second = run("seal", "out/checkpoint-480", "--run", "store", "--json").json
    assert second["schema"] == "samestep.sealed/1"
    assert second["bundle"]["step"] == 480
    assert 0 < second["new_bytes"] < second["bundle"]["size_bytes"] / 4


def test_seal_refuses_open_rows_before_it_touches_the_run(here, forge):
    forge.torch_file(here / "ckpt.pt", forge.checkpoint(8))
    with pytest.raises(SamestepError, match="leaves open what becomes of 1 component"):
        run("seal", "ckpt.pt", "--run", "store")
    assert not (here / "store").exists()
    run("seal", "ckpt.pt", "--run", "store", "--rebuilt", "data-order=from the seed = 3")
    row = run("show", "store", "--json").json["manifest"]["contract"]["data-order"]
    assert row == {"state": "rebuilt", "how": "from the seed = 3", "test": "stated when it was sealed"}


def test_seal_keeps_what_the_files_cannot_say(here):
    (here / "train.yaml").write_text("lr: 1\n")
    run("seal", "out/checkpoint-240", "--run", "store", "--data-version", "v7", "--config", "train.yaml")
    manifest = run("show", "store", "--json").json["manifest"]
    assert manifest["data"]["version"] == "v7"
    assert manifest["config_digest"].startswith("sha256:")
    assert "v7" in run("select", "store").out


@pytest.mark.parametrize(
    "words",
    [
        ["--rebuilt", "rng"],
        ["--irrelevant", "=why"],
        ["--irrelevant", "rng= "],
        ["--rebuilt", "rng=a", "--rebuilt", "rng=b"],
        ["--watch", "--step", "3"],
        ["--config", "nowhere.yaml"],
        ["--step", "7"],
    ],
    ids=" ".join,
)
def test_seal_refuses_what_makes_no_sense(here, words):
    with pytest.raises(UsageError):
        run("seal", "out/checkpoint-240", "--run", "store", *words)
    assert not (here / "store").exists()


def test_ls_shows_the_newest_first_with_pins(store):
    run("pin", store, "latest", "--name", "best")
    text = re.sub(r"b-\d{8}t\d{9}-[0-9a-f]{10}", "b-" + "X" * 29, run("ls", store).out)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "YYYY-MM-DD HH:MM:SS", text)
    name = "b-" + "X" * 29
    assert text == (
        "bundle                           step  saved                   size  parts  from\n"
        f"{name}   480  YYYY-MM-DD HH:MM:SS  2.4 KiB      6  transformers checkpoint-480  pinned (best)\n"
        f"{name}   240  YYYY-MM-DD HH:MM:SS  2.4 KiB      6  transformers checkpoint-240\n"
    )


def test_ls_of_a_run_without_bundles_says_so(here):
    Store.create(open_storage(here / "store"))
    assert re.fullmatch(r"r-\S+ holds no bundle\n", run("ls", "store").out)
    assert run("ls", "store", "--json").json["bundles"] == []


def test_ls_names_records_that_cannot_be_read(store):
    newest = max((store / "chain").iterdir())
    newest.chmod(0o644)
    newest.write_text("{}")
    shown = run("ls", store)
    assert "record 4 cannot be read: unknown-format" in shown.out
    assert shown.code == ExitCode.DEFECT
    assert run("verify", store).code == ExitCode.DEFECT


def test_show_says_what_it_holds_and_what_becomes_of_every_component(store):
    text = run("show", store, ids(store)[1][:-4]).out
    assert re.search(r"^  step +240$", text, re.MULTILINE)
    assert re.search(r"^  from +sealed transformers checkpoint-240$", text, re.MULTILINE)
    assert re.search(r"^  parent +none: the first of the run$", text, re.MULTILINE)
    assert re.search(r"^optimizer +saved +optimizer.pt$", text, re.MULTILINE)
    assert re.search(
        r"^data-position +rebuilt +from the step, .* \(shown by samestep drill --only cut\)$",
        text,
        re.MULTILINE,
    )
    assert re.search(r"^model.safetensors +167 bytes +weights$", text, re.MULTILINE)
    assert re.search(
        r"^model.safetensors .* shared with the one before$", run("show", store).out, re.MULTILINE
    )


def test_show_as_json_is_the_manifest(store):
    shown = run("show", store, "--json").json
    assert shown["schema"] == "samestep.bundle-shown/1"
    assert shown["manifest"]["schema"] == "samestep.bundle/1"
    assert shown["manifest"]["id"] == ids(store)[0]


def test_verify_reads_every_byte_unless_told_otherwise(store):
    newest, older = ids(store)
    assert [line.split(maxsplit=1)[1] for line in run("verify", store).lines] == [
        "step 480  whole (full)",
        "step 240  whole (full)",
    ]
    damage(store, newest)
    shown = run("verify", store)
    assert shown.code == ExitCode.DEFECT
    assert "digest-differs: trainer_state.json" in shown.out
    assert run("verify", store, "--level", "sizes").code == ExitCode.HOLDS
    assert run("verify", store, older).code == ExitCode.HOLDS
    plain = run("verify", store, newest, "--json").json
    assert plain["schema"] == "samestep.verification/1"
    assert [one["holds"] for one in plain["bundles"]] == [False]


def test_select_explains_and_its_exit_codes_tell_empty_from_damaged(here):
    Store.create(open_storage(here / "store"))
    empty = run("select", "store")
    assert empty.code == ExitCode.NOTHING_RAN
    assert "holds no bundle yet" in empty.out
    assert run("verify", "store").code == ExitCode.NOTHING_RAN
    run("seal", "out/checkpoint-240", "--run", "store")
    (found,) = ids("store")
    shown = run("select", "store", "--cut-step", 250)
    assert shown.code == ExitCode.HOLDS
    assert f"resumes from {found}, step 240" in shown.out
    assert re.search(r"steps lost +10", shown.out)
    (here / "store" / "bundles" / found / "optimizer.pt").unlink()
    damaged = run("select", "store", "--json")
    assert damaged.code == ExitCode.DEFECT
    assert damaged.json["outcome"] == "damaged"
    assert [one["reason"] for one in damaged.json["set_aside"]] == ["part-missing"]


def test_select_says_why_newer_ones_were_set_aside_or_refuses(store):
    newest, older = ids(store)
    (store / "bundles" / newest / "optimizer.pt").unlink()
    shown = run("select", store)
    assert f"resumes from {older}" in shown.out
    assert f"set aside   {newest} (step 480): part-missing" in shown.out
    assert run("select", store, "--policy", "strict").code == ExitCode.DEFECT


def test_select_compares_environment_ranks_and_run(store):
    assert run("select", store, "--expect", "torch=0.1", "--json").json["set_aside"][0]["reason"] == (
        "environment-differs"
    )
    assert run("select", store, "--ranks", 8, "--json").json["set_aside"][0]["reason"] == "world-differs"
    assert exit_code_of("select", store, "--run", "r-20260101t000000000-0123456789") == ExitCode.USAGE


@pytest.mark.parametrize("verb", ["ls", "show", "verify", "select"])
def test_looking_leaves_no_trace(store, verb):
    before = sorted((path, path.stat().st_mtime_ns) for path in store.rglob("*"))
    run(verb, store)
    assert sorted((path, path.stat().st_mtime_ns) for path in store.rglob("*")) == before


def test_a_place_without_a_run_is_named(here):
    with pytest.raises(SamestepError, match="nowhere does not exist"):
        run("ls", "nowhere")
    assert not (here / "nowhere").exists()


def test_restore_shows_the_decision_and_puts_the_folder_back(store, here):
    shown = run("restore", store, "--into", "fresh", "--cut-step", 500)
    assert shown.lines[0].endswith("step 480")
    assert "steps lost  20" in shown.out
    assert shown.lines[-1].endswith(f"is in {here}/fresh/checkpoint-480")
    back = {path.name: path.read_bytes() for path in (here / "fresh/checkpoint-480").iterdir()}
    assert back == {path.name: path.read_bytes() for path in (here / "out/checkpoint-480").iterdir()}


def test_restore_falls_back_when_bytes_turn_out_damaged(store, here):
    newest, older = ids(store)
    damage(store, newest)
    plain = run("restore", store, "--into", "fresh", "--json").json
    assert plain["schema"] == "samestep.restored/1"
    assert (plain["bundle"], plain["step"]) == (older, 240)
    assert plain["decision"]["set_aside"][0]["reason"] == "digest-differs"
    assert [path.name for path in (here / "fresh").iterdir()] == ["checkpoint-240"]
    assert exit_code_of("restore", store, "--into", "other", "--policy", "strict") == ExitCode.DEFECT
    assert exit_code_of("restore", store, "--into", "other", "--bundle", newest) == ExitCode.DEFECT


def test_restore_from_nothing_and_from_nothing_whole_exit_differently(here):
    Store.create(open_storage(here / "store"))
    assert exit_code_of("restore", "store", "--into", "fresh") == ExitCode.NOTHING_RAN
    run("seal", "out/checkpoint-240", "--run", "store")
    damage(here / "store", *ids("store"))
    assert exit_code_of("restore", "store", "--into", "fresh") == ExitCode.DEFECT
    assert not list(here.glob("fresh/*"))


def test_restore_warns_when_the_framework_would_take_another(store, here, forge):
    forge.trainer_checkpoint(here / "fresh" / "checkpoint-999", 999)
    shown = run("restore", store, "--into", "fresh")
    assert "would take checkpoint-999" in shown.err


def test_a_new_run_needs_a_root_and_a_reason_of_its_own(store, here):
    new = ["--intent", "new-run", "--new-run", "next"]
    assert exit_code_of("restore", store, "--into", "fresh", "--intent", "new-run") == ExitCode.USAGE
    assert exit_code_of("restore", store, "--into", "fresh", *new) == ExitCode.USAGE
    assert exit_code_of("restore", store, "--into", "fresh", "--new-run", "next") == ExitCode.USAGE
    assert not (here / "fresh").exists()
    assert not (here / "next").exists()
    shown = run("restore", store, "--into", "fresh", *new, "--reason", "a lower rate")
    assert "gives a new run its start from" in shown.lines[0]
    assert [path.name for path in (here / "fresh").iterdir()] == ["model.safetensors"]
    lineage = run("ls", "next", "--json").json["lineage"]
    assert (lineage["intent"], lineage["step"], lineage["reason"]) == ("new-run", 480, "a lower rate")
    with pytest.raises(UsageError, match="already holds"):
        run("restore", store, "--into", "again", *new, "--reason", "x")
    assert not (here / "again").exists()


def test_nothing_resumes_from_open_rows_even_when_it_is_named(here, forge):
    forge.torch_file(here / "ckpt.pt", forge.checkpoint(8))
    run("seal", "ckpt.pt", "--run", "store", "--allow-open")
    assert "open: data-order" in run("ls", "store").out
    with pytest.raises(UsageError, match="leaves open what becomes of data-order"):
        run("restore", "store", "--into", "fresh", "--bundle", "latest")
    run("restore", "store", "--into", "weights", "--intent", "weights")
    assert (here / "weights" / "ckpt.pt").exists()


def test_the_weights_alone_are_restored_or_exported(store, here):
    run("restore", store, "--into", "a", "--intent", "weights")
    run("export", store, "--into", "b", "--bundle", ids(store)[1])
    assert "beware" not in run("export", store, "--into", "c").err
    for folder in ("a", "b"):
        assert [path.name for path in (here / folder).iterdir()] == ["model.safetensors"]


def test_copy_makes_a_run_of_its_own(store):
    plain = run("copy", store, "copies", "--json").json
    assert plain["schema"] == "samestep.copied/1"
    assert ids("copies") == [plain["copy"]]
    assert run("ls", "copies", "--json").json["lineage"]["bundle"] == plain["bundle"]
    assert run("verify", "copies").code == ExitCode.HOLDS


def test_prune_keeps_the_last_and_what_is_pinned(store, here):
    newest, older = ids(store)
    would = run("prune", store, "--keep-last", 1, "--dry-run")
    assert f"{older}  step 240  would be given up" in would.out
    assert ids(store) == [newest, older]
    run("pin", store, older, "--because", "published")
    assert f"{older}  step 240  stays: held by pin-pin" in run("prune", store, "--keep-last", 1).out
    assert "no longer pinned" in run("unpin", store, older).out
    assert "had no pin" in run("unpin", store, older).out
    plain = run("prune", store, "--keep-last", 1, "--json").json
    assert [one["id"] for one in plain["retired"]] == [older]
    assert plain["bytes_removed"] > 0
    assert ids(store) == [newest]
    assert run("verify", store).code == ExitCode.HOLDS


def test_a_launcher_can_tell_nothing_there_from_damage_outage_and_typos(store, here):
    (here / "file").write_text("no folder")
    garbled = here / "garbled"
    garbled.mkdir()
    (garbled / "run.json").write_text("{")
    shutil.copytree(store / "bundles", here / "rest" / "bundles")
    for verb in (["select"], ["restore", "--into", "fresh"]):
        assert exit_code_of(*verb, "nowhere") == ExitCode.NOTHING_RAN
        assert exit_code_of(*verb, "nowhere", "--run", "r-20260131t235959123-0123456789") == ExitCode.USAGE
        assert exit_code_of(*verb, store, "--run", "r-20260131t235959123-0123456789") == ExitCode.USAGE
        assert exit_code_of(*verb, "garbled") == ExitCode.DEFECT
        assert exit_code_of(*verb, "rest") == ExitCode.DEFECT
        assert exit_code_of(*verb, "file") == ExitCode.USAGE
        assert exit_code_of(*verb, "file/below") == ExitCode.USAGE
        assert exit_code_of(*verb, "ftp://host/x") == ExitCode.USAGE
        assert exit_code_of(*verb, "~nosuchuser/x") == ExitCode.USAGE
    assert exit_code_of("show", store, "b-unknown") == ExitCode.USAGE
    assert exit_code_of("pin", store, "latest", "--name", "Not A Name") == ExitCode.USAGE
    assert not (here / "fresh").exists()


def test_a_place_that_fails_is_neither_a_typo_nor_a_first_start(store, monkeypatch):
    def failing(*_, **__):
        raise StoreError("the place failed")

    monkeypatch.setattr(LocalStorage, "sizes", failing)
    assert exit_code_of("select", store) == ExitCode.INCONCLUSIVE
    assert exit_code_of("restore", store, "--into", "fresh") == ExitCode.INCONCLUSIVE


def test_nothing_is_kept_in_the_memory_of_a_command_that_ends(here):
    with pytest.raises(UsageError, match="nothing would be left"):
        run("seal", "out/checkpoint-240", "--run", "memory:")


@pytest.mark.parametrize("verb", ["restore", "export"])
def test_a_target_that_cannot_be_one_is_refused_before_anything_is_decided(store, here, verb):
    (here / "file").write_text("x")
    for into, says in {
        "file": "file is a file and no folder",
        "file/below": "is a file and no folder, so .*file/below cannot be there",
        store: "lies inside",
        "store/bundles": "lies inside",
    }.items():
        with pytest.raises(UsageError, match=says):
            run(verb, store, "--into", into)
    assert (here / "file").read_text() == "x"


def test_verify_reads_every_record_also_of_bundles_that_are_given_up(store, here):
    run("prune", store, "--keep-last", "1")
    assert run("verify", store).code == ExitCode.HOLDS
    first = store / "chain" / "0000000002.json"
    first.chmod(0o644)
    first.write_bytes(first.read_bytes().replace(b'"step":240', b'"step":241'))
    assert run("select", store).code == ExitCode.HOLDS  # nobody needs it to go on
    shown = run("verify", store)
    assert shown.code == ExitCode.DEFECT
    assert "record 2 cannot be read: unknown-format: record 2 of r-" in shown.out
    assert "was changed after it was written" in shown.out


def test_a_target_in_the_way_is_said_as_such(store, here):
    (here / "fresh" / "checkpoint-480").mkdir(parents=True)
    (here / "fresh" / "checkpoint-480" / "kept").write_text("mine")
    assert exit_code_of("restore", store, "--into", "fresh") == ExitCode.USAGE


def all_damaged(store):
    for one in ids(store):
        (store / "bundles" / one / "optimizer.pt").unlink()


def test_seal_goes_on_with_nothing_but_damage_only_when_told_why(store, here, forge):
    all_damaged(store)
    before = len(list((store / "chain").iterdir()))
    forge.trainer_checkpoint(here / "out" / "checkpoint-720", 720)
    with pytest.raises(AllDamaged, match="part-missing") as raised:
        run("seal", "out/checkpoint-720", "--run", store)
    assert "--begin-again REASON" in raised.value.hint
    assert len(list((store / "chain").iterdir())) == before
    run("seal", "out/checkpoint-720", "--run", store, "--begin-again", "the disk was lost")
    registered = json.loads(sorted((store / "chain").iterdir())[before].read_text())
    assert "the disk was lost" in registered["reason"]
    assert run("select", store).code == ExitCode.HOLDS


def test_a_series_with_open_rows_goes_on_by_itself(here, forge):
    for step in (8, 16):
        forge.torch_file(here / f"step-{step}" / "ckpt.pt", forge.checkpoint(step))
        run("seal", f"step-{step}", "--run", "open", "--allow-open")
    newest = run("show", "open", "--json").json["manifest"]
    assert newest["parent"]["id"] == ids("open")[1]
    registered = json.loads((here / "open" / "chain" / "0000000003.json").read_text())
    assert "leave components open" in registered["reason"]
    assert run("select", "open").code == ExitCode.DEFECT


def repository(folder):
    for words in (
        ["init", "-q"],
        ["add", "train.py"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "one"],
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True, timeout=30)


def code_of(root):
    return run("show", root, "--json").json["manifest"].get("code", {})


def test_seal_keeps_which_code_was_checked_out_and_whether_it_was_changed(here):
    run("seal", "out/checkpoint-240", "--run", "none")
    assert code_of("none") == {}
    (here / "train.py").write_text("1")
    repository(here)
    run("seal", "out/checkpoint-240", "--run", "clean")
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert code_of("clean") == {"commit": commit, "changed": "no"}
    (here / "train.py").write_text("2")
    run("seal", "out/checkpoint-240", "--run", "changed")
    assert code_of("changed") == {"commit": commit, "changed": "yes"}
    run("seal", "out/checkpoint-240", "--run", "said", "--code", "image=train:7")
    assert code_of("said") == {"image": "train:7"}
    with pytest.raises(UsageError, match="--code 7 says nothing"):
        run("seal", "out/checkpoint-240", "--run", "wrong", "--code", "7")


def journal_of(folder, kind):
    (path,) = (folder / ".samestep" / "journal").glob(f"{kind}-*/*.jsonl")
    return read_journal(path).events


def test_one_seal_writes_its_decision_and_its_save_into_a_journal_that_the_commit_carries(here):
    run("seal", "out/checkpoint-240", "--run", "store")
    events = journal_of(here, "a")
    assert [event.event for event in events] == [
        "journal-opened", "attempt-started", "decision", "save-asked", "save-durable", "save-committed",
    ]  # fmt: skip
    assert events[2].values.keys() >= set(Decision.__struct_fields__)
    store = Store.open(open_storage("store"), writing=False)
    (bundle,) = store.bundles()
    carried = read_carried(store.storage, bundle.manifest.attempt)
    assert [event.event for event in carried.events] == [event.event for event in events[:4]]


def test_restore_writes_every_decision_and_what_became_of_it_into_a_journal(store, here):
    newest, older = ids(store)
    damage(store, newest)
    shutil.rmtree(here / ".samestep")
    shown = run("restore", store, "--into", "fresh", "--json").json
    events = [event for event in journal_of(here, "restore") if event.event != "journal-opened"]
    assert shown["journal"].startswith(str(here / ".samestep" / "journal" / "restore-"))
    assert [(event.event, event.values["bundle"]) for event in events] == [
        ("decision", newest), ("restore-begun", newest), ("restore-ended", newest),
        ("decision", older), ("restore-begun", older), ("restore-ended", older),
    ]  # fmt: skip
    assert events[2].values["outcome"].startswith("bundle-damaged: ")
    assert events[3].values["set_aside"][0]["reason"] == "digest-differs"
    assert events[5].values["outcome"] == "done"


def test_a_restore_that_is_refused_or_named_is_in_a_journal_too(store, here):
    newest, older = ids(store)
    shutil.rmtree(here / ".samestep")
    run("restore", store, "--into", "fresh", "--bundle", older)
    assert [event.values["named"] for event in journal_of(here, "restore") if event.event == "decision"] == [
        older
    ]
    shutil.rmtree(here / ".samestep")
    (store / "bundles" / newest / "optimizer.pt").unlink()
    with pytest.raises(AllDamaged):
        run("restore", store, "--into", "other", "--policy", "strict")
    assert [event.values["outcome"] for event in journal_of(here, "restore")[1:]] == ["refused"]


def test_a_journal_that_cannot_be_written_keeps_nothing_from_being_sealed_or_restored(store, here, forge):
    shutil.rmtree(here / ".samestep")
    (here / ".samestep").write_text("in the way")
    forge.trainer_checkpoint(here / "out" / "checkpoint-720", 720)
    assert "beware: there is no journal of a-" in run("seal", "out/checkpoint-720", "--run", store).err
    shown = run("restore", store, "--into", "fresh")
    assert "beware: what was decided is in no journal: " in shown.err
    assert (here / "fresh" / "checkpoint-720").is_dir()


def test_weights_in_shards_of_transformers_are_exported_as_they_lie(here, forge):
    folder = here / "out" / "checkpoint-960"
    forge.trainer_checkpoint(folder, 960)
    (folder / "model.safetensors").unlink()
    shards = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    for number, shard in enumerate(shards):
        forge.safetensors(folder / shard, f"layer.{number}")
    index = {
        "metadata": {"total_size": 32},
        "weight_map": {f"layer.{n}": shard for n, shard in enumerate(shards)},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    run("seal", folder, "--run", "sharded")
    run("export", "sharded", "--into", "weights")
    names = {path.name for path in (here / "weights").iterdir()}
    assert names >= {*shards, "model.safetensors.index.json"}
    assert not names & {"optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}
    for name in (*shards, "model.safetensors.index.json"):
        assert (here / "weights" / name).read_bytes() == (folder / name).read_bytes()


def test_copy_goes_on_with_nothing_but_damage_only_when_told_why(store, here, forge):
    run("copy", store, "copies", "--bundle", ids(store)[1])
    all_damaged(here / "copies")
    assert exit_code_of("copy", store, "copies") == ExitCode.DEFECT
    assert len(ids(here / "copies")) == 1
    run("copy", store, "copies", "--begin-again", "the first copy was damaged")
    assert len(ids(here / "copies")) == 2


def test_seal_does_not_go_back(store, here):
    before = len(list((store / "chain").iterdir()))
    assert exit_code_of("seal", "out/checkpoint-240", "--run", store) == ExitCode.USAGE
    assert len(list((store / "chain").iterdir())) == before


def test_restore_wishes_what_select_wishes(store, here):
    for wish in (["--expect", "torch=0.1"], ["--ranks", "64"]):
        assert run("select", store, *wish).code == ExitCode.DEFECT
        assert exit_code_of("restore", store, "--into", "fresh", *wish) == ExitCode.DEFECT
        with pytest.raises(UsageError, match="--bundle names one"):
            run("restore", store, "--into", "fresh", "--bundle", "latest", *wish)
    assert not list(here.glob("fresh/*"))


@pytest.fixture
def forked(store, here, forge):
    """A store whose run went on from its first bundle, past the second, with the ids newest first."""
    newest, _ = ids(store)
    damage(store, newest)
    opened = Store.open(open_storage(store), writing=True)
    attempt = opened.register(opened.select(damaged={newest: "a byte differs"}), "goes on from the older one")
    for step in (600, 720):
        seal(attempt, forge.trainer_checkpoint(here / "out" / f"checkpoint-{step}", step))
    damage(store, newest)  # the same byte: whole again
    return ids(store)


def test_what_the_run_went_on_without_is_resumed_from_only_when_told(store, forked, here):
    latest, _, abandoned, first = forked
    with pytest.raises(SamestepError, match=r"abandoned: .* continued from"):
        run("restore", store, "--into", "fresh", "--bundle", abandoned)
    assert not (here / "fresh").exists()
    shown = run("restore", store, "--into", "fresh", "--bundle", abandoned, "--abandoned")
    assert shown.lines[:2] == [
        f"{abandoned}, step 480, is taken because it was named",
        f"  selection   {latest}, step 720",
    ]
    assert (here / "fresh" / "checkpoint-480").is_dir()
    run("restore", store, "--into", "older", "--bundle", first)
    run("restore", store, "--into", "weights", "--bundle", abandoned, "--intent", "weights")
    with pytest.raises(UsageError, match="a bundle that is named"):
        run("restore", store, "--into", "x", "--abandoned")


def test_a_new_run_and_weights_are_promised_no_next_step(store, here):
    for intent in ("new-run", "weights"):
        assert "next step" not in run("select", store, "--intent", intent).out
    assert "next step" in run("select", store).out


def test_weights_that_share_a_file_with_other_state_are_said_to(here, forge):
    forge.torch_file(here / "ckpt.pt", forge.checkpoint(8))
    run("seal", "ckpt.pt", "--run", "one-file", "--rebuilt", "data-order=from the seed")
    said = "the same files hold optimizer, "
    assert said in run("export", "one-file", "--into", "a").err
    assert said in run("restore", "one-file", "--into", "b", "--intent", "weights").err
    assert said not in run("restore", "one-file", "--into", "c").err
    assert re.search(r"^data-order +rebuilt +from the seed \(stated when it was sealed\)$",
                     run("show", "one-file").out, re.MULTILINE)  # fmt: skip


def test_restore_from_a_place_that_cannot_be_written_says_what_that_means(store, here, monkeypatch):
    def refused(*_):
        raise StoreError("cannot create it: Read-only file system (EROFS)")

    monkeypatch.setattr(LocalStorage, "create", refused)
    for verb in ("restore", "export"):
        assert re.search(r"beware: .*Read-only file system", run(verb, store, "--into", verb).err)


def test_restore_says_what_was_decided_before_it_works_even_with_json(store):
    assert "next step   481" in run("restore", store, "--into", "fresh", "--json").err


@pytest.fixture
def watched(here, monkeypatch):
    """The events in the journal of a watcher that was interrupted, and the folders that were made durable."""
    synced = []
    original = os.fsync

    def fsync(descriptor):
        synced.append(str(Path(f"/proc/self/fd/{descriptor}").readlink()))
        original(descriptor)

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Watcher, "watch", interrupted)
    with pytest.raises(click.Abort):
        run("seal", "out", "--run", "store", "--watch", "--settle", "0")
    (journal,) = (here / ".samestep" / "journal").glob("*/*.jsonl")
    return read_journal(journal).events, synced, journal.parent


def test_the_journal_of_a_watcher_holds_the_whole_decision(watched):
    events, _, _ = watched
    decision = next(event.values for event in events if event.event == "decision")
    fields = Decision.__struct_fields__
    assert decision.keys() >= set(fields)
    assert (decision["outcome"], decision["policy"], decision["head"]) == ("empty", "fallback", 0)
    assert [event.values["step"] for event in events if event.event == "save-committed"] == [240, 480]


def test_every_folder_that_leads_to_the_journal_would_survive_a_power_cut(watched, here):
    _, synced, folder = watched
    led = [folder, folder.parent, folder.parent.parent, here]
    assert {str(place) for place in led} <= set(synced)
    assert (here / ".samestep" / ".gitignore").read_text() == "*\n"


def test_every_verb_below_has_help():
    for name in (
        "ls",
        "show",
        "verify",
        "select",
        "restore",
        "seal",
        "pin",
        "unpin",
        "prune",
        "copy",
        "export",
    ):
        assert "Usage:" in run(name, "--help").out
