"""Commands that the docs show do what the docs say."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from samestep.cli.main import VERBS, cli


def _load(name):
    spec = importlib.util.spec_from_file_location(f"docs_{name}", Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


pages = _load("pages")
SHOWN = pages.shown_commands()


def run(words, folder):
    assert words[0] in ("samestep", "python")
    words = ["-m", *words] if words[0] == "samestep" else words[1:]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("shown", [s for s in SHOWN if not s.drill], ids=str)
def test_shown_command_runs(shown, tmp_path):
    finished = run(shown.words, tmp_path)
    assert finished.returncode == shown.exit_code, finished.stderr
    assert finished.stdout.strip()


@pytest.mark.full
@pytest.mark.parametrize("shown", [s for s in SHOWN if s.drill], ids=str)
def test_shown_drill_ends_as_promised(shown, tmp_path):
    shutil.copytree(pages.ROOT / "examples", tmp_path / "examples")
    finished = run(shown.words, tmp_path)
    assert finished.returncode == shown.exit_code, finished.stdout + finished.stderr


@pytest.mark.parametrize("page", list(pages.sequences()), ids=lambda page: page.stem)
def test_commands_shown_one_after_the_other_do_their_work(page, tmp_path):
    shutil.copytree(pages.ROOT / "examples", tmp_path / "examples")
    for words in pages.sequences()[page]:
        finished = run(words, tmp_path)
        said = finished.stdout + finished.stderr
        assert finished.returncode == 0, f"{shlex.join(words)}: {said}"
        assert said.strip()


def test_docs_show_commands_of_both_kinds():
    assert {shown.drill for shown in SHOWN} == {True, False}


def _lines():
    for page in pages.PAGES:
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            command = line.removeprefix("$ ").split("#")[0].strip()
            written_by_hand = page.parent.name != "reference"
            if command.startswith("samestep ") and line == line.lstrip() and written_by_hand:
                yield pytest.param(command, id=f"{page.stem}:{number}")


@pytest.mark.parametrize("command", list(_lines()))
def test_every_command_line_in_the_docs_is_understood(command):
    """Verbs and options exist and values have the right kind; nothing is run."""
    verb, *rest = shlex.split(command)[1:]
    if verb.startswith("-"):
        return
    if verb not in VERBS:
        pytest.skip("a sentence that begins with the tool's name")
    parent = click.Context(cli, **cli.context_settings)
    cli.get_command(parent, verb).make_context(verb, rest, parent=parent)
