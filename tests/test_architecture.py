"""Imports point down: the contracts of import-linter in pyproject.toml hold."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "samestep"
TRAVELLING = [
    *sorted((SOURCE / "trace").rglob("*.py")),
    *sorted((SOURCE / "contract").rglob("*.py")),
    SOURCE / "errors.py",
]
"""Modules that are loaded inside foreign training processes; those of the probe come on top."""


def _short(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def test_layers_and_torch_contract_hold(monkeypatch):
    cli = pytest.importorskip("importlinter.cli")
    monkeypatch.chdir(SOURCE.parents[1])
    assert cli.lint_imports(no_cache=True) == 0


@pytest.mark.parametrize("path", [*TRAVELLING, *sorted((SOURCE / "probe").rglob("*.py"))], ids=_short)
def test_code_inside_training_processes_imports_itself_relatively(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))
    absolute = [
        name for node in ast.walk(tree) for name in _imported(node) if name.split(".")[0] == "samestep"
    ]
    assert not absolute


@pytest.mark.parametrize("path", TRAVELLING, ids=_short)
def test_words_and_traces_need_only_the_standard_library(path):
    names = {name.split(".")[0] for node in ast.walk(ast.parse(path.read_text())) for name in _imported(node)}
    assert names <= set(sys.stdlib_module_names)


def _imported(node: ast.AST) -> list[str]:
    """Return the absolute names that an import statement loads."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [node.module or ""]
    return []
