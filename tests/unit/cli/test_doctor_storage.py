"""``doctor --storage``: what a place promises a bundle store."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from samestep.bundle.errors import StoreError
from samestep.bundle.storage import local, promises
from samestep.cli.doctor import doctor
from samestep.errors import ExitCode


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(promises, "PIECE_BYTES", 1 << 20)


def run(*arguments):
    return CliRunner().invoke(doctor, arguments, catch_exceptions=False, standalone_mode=False)


def test_a_folder_that_keeps_its_promises_holds(tmp_path):
    shown = run("--storage", str(tmp_path / "store"), "--json")
    assert shown.return_value == ExitCode.HOLDS
    checks = {check["name"]: check for check in json.loads(shown.output)["checks"]}
    assert {"failure domain", "fsync", "names", "one name, one writer", "parts", "room"} <= checks.keys()
    assert not any(check["refused"] for check in checks.values())
    assert not (tmp_path / "store").exists()


def test_a_place_that_ignores_conditions_is_a_defect_and_marked(tmp_path, monkeypatch):
    monkeypatch.setattr(promises, "conditional_create_honoured", lambda _storage: False)
    shown = run("--storage", str(tmp_path))
    assert shown.return_value == ExitCode.DEFECT
    (line,) = [line for line in shown.output.splitlines() if line.startswith("no")]
    assert "one name, one writer" in line
    assert str(tmp_path) in line


def test_a_place_that_cannot_be_used_is_an_error_that_says_why(tmp_path):
    (tmp_path / "store").write_bytes(b"a file")
    with pytest.raises(StoreError, match="ENOTDIR"):
        run("--storage", str(tmp_path / "store"))


def test_a_url_that_is_none_is_refused():
    with pytest.raises(StoreError, match="is no place"):
        run("--storage", "ftp://host/a")


def test_only_the_place_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "room_left", lambda _folder: 1 << 40)
    names = {line[4:].split("  ")[0] for line in run("--storage", f"file://{tmp_path}").output.splitlines()}
    assert "python" not in names
    assert "room" in names
