"""From a path or URL to the place it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from samestep.bundle.errors import StoreError
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.storage.opening import open_storage
from samestep.errors import ExitCode


@pytest.mark.parametrize(
    ("where", "root"),
    [
        ("/a/b", "/a/b"),
        (Path("/a/b"), "/a/b"),
        ("file:///a/b%20c", "/a/b c"),
        ("file://localhost/a", "/a"),
        ("FILE:///a", "/a"),
        ("runs/one", str(Path.cwd() / "runs/one")),
        ("odd:name", str(Path.cwd() / "odd:name")),
        ("~/runs", str(Path("~/runs").expanduser())),
    ],
)
def test_paths_and_file_urls_are_folders(where, root):
    storage = open_storage(where)
    assert isinstance(storage, LocalStorage)
    assert storage.url == root


def test_opening_makes_nothing(tmp_path):
    open_storage(tmp_path / "store")
    assert list(tmp_path.iterdir()) == []


def test_memory_is_an_object_store():
    pytest.importorskip("obstore")
    storage = open_storage("memory:")
    storage.create("run.json", b"x")
    assert storage.read("run.json", limit=1) == b"x"


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("ftp://host/a", "ftp:// is no place"),
        ("https://user:secret@host/a", "https:// is no place"),
        ("file://elsewhere/a", "not a folder of this machine"),
        ("file:a", "not a folder of this machine"),
        ("file:///a?b=c", "not a folder of this machine"),
        ("", "not the path of a folder"),
        ("a\0b", "not the path of a folder"),
        ("~nosuchuser/x", "names no folder"),
    ],
)
def test_what_names_no_place_is_refused_without_repeating_secrets(where, said):
    with pytest.raises(StoreError, match=said) as refused:
        open_storage(where)
    assert "secret" not in refused.value.message
    assert refused.value.exit_code is ExitCode.USAGE
    assert refused.value.hint
