"""The house is in order: sizes, names, docstrings, no dead modules, no leftovers."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
from collections import Counter
from pathlib import Path

import pytest

from samestep import errors

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
FILE_LINES, FUNCTION_LINES = 400, 70
MODULES = sorted((SOURCE / "samestep").rglob("*.py"))
PYTHON = [*MODULES, *sorted((ROOT / "tests").rglob("*.py")), *sorted((ROOT / "examples").glob("*.py"))]
LOADED_BY_NAME = re.compile(r"samestep\.(cli\.\w+|__main__|probe\..*)$")
"""Verbs are loaded by name, the probe by its path."""


@functools.cache
def functions(path):
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def name_of(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_files_and_functions_stay_short(path):
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= FILE_LINES
    long = {f.name: f.end_lineno - f.lineno + 1 for f in functions(path)}
    assert not {name: length for name, length in long.items() if length > FUNCTION_LINES}


def test_functions_are_short_as_a_rule():
    lengths = sorted(f.end_lineno - f.lineno + 1 for path in MODULES for f in functions(path))
    assert lengths[len(lengths) // 2] <= 12
    assert lengths[len(lengths) * 9 // 10] <= 35


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_says_what_it_is_for(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


def test_no_module_is_dead():
    words = {path: set(re.findall(r"\w+", path.read_text(encoding="utf-8"))) for path in MODULES}
    used = Counter(word for found in words.values() for word in found)
    for path in MODULES:
        name, leaf = name_of(path), path.stem
        if path.name == "__init__.py" or LOADED_BY_NAME.match(name):
            continue
        assert used[leaf] > (leaf in words[path]), f"{name} is imported by nothing"


def test_nothing_is_left_to_do_in_the_code():
    leftovers = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    found = [str(path) for path in PYTHON if leftovers.search(path.read_text(encoding="utf-8"))]
    assert not found


def test_every_error_says_when_it_happens_and_has_a_slug_of_its_own():
    kinds = [
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.SamestepError)
    ]
    assert all(kind.__doc__ for kind in kinds)
    assert len({kind.slug for kind in kinds}) == len(kinds)
    drawn = errors.__doc__ or ""
    assert all(kind.__name__ in drawn for kind in kinds), "the tree at the top of errors.py is not complete"


def test_public_names_are_real():
    for path in MODULES:
        if path.name != "__init__.py" or "probe" in path.parts:
            continue
        module = importlib.import_module(name_of(path))
        assert all(hasattr(module, name) for name in getattr(module, "__all__", []))


def test_the_changelog_has_a_section_for_what_comes():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert "\n## Unreleased\n" in text


@pytest.mark.xdist_group("of one worker")
def test_tests_of_a_group_share_a_worker_and_its_set_up(request):
    """pytest-xdist 3.8 no longer groups under pytest 9.2, and every set-up of a module is then made by both workers."""
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("runs without pytest-xdist's --dist loadgroup")
    assert request.node.nodeid.endswith("@of one worker")
