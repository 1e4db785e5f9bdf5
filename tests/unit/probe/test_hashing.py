"""Digests of memory use the script's own xxhash, or the one samestep brings, and never a foreign build."""

import sys
from pathlib import Path

import pytest
import xxhash

from samestep.probe import hashing

OWN = str(Path(xxhash.__file__).parent)


@pytest.fixture
def without_xxhash(monkeypatch):
    monkeypatch.setitem(sys.modules, "xxhash", None)


def test_the_scripts_own_xxhash_comes_first():
    assert hashing.find("") is xxhash.xxh3_128_digest


def test_a_script_without_xxhash_gets_the_one_that_samestep_brings(without_xxhash):
    digest = hashing.find(OWN)
    assert digest(b"content") == xxhash.xxh3_128_digest(b"content")


def test_what_is_brought_is_not_importable_for_the_script(without_xxhash, monkeypatch):
    monkeypatch.delitem(sys.modules, "_xxhash", raising=False)
    hashing.find(OWN)
    assert "_xxhash" not in sys.modules
    with pytest.raises(ImportError):
        __import__("xxhash")


@pytest.mark.parametrize("name", ["_xxhash.cpython-27-x86_64-linux-gnu.so", "_xxhash.so"])
def test_an_extension_for_another_interpreter_is_left_alone(without_xxhash, tmp_path, name):
    (tmp_path / name).write_bytes(b"no extension of ours")
    assert hashing.find(str(tmp_path)) is None


def test_a_damaged_extension_is_no_reason_to_fail(without_xxhash, tmp_path):
    (built,) = Path(OWN).glob("_xxhash*.so")
    (tmp_path / built.name).write_bytes(b"damaged")
    assert hashing.find(str(tmp_path)) is None


def test_without_any_there_is_none(without_xxhash):
    assert hashing.find("") is None
