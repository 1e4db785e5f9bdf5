"""Start-up stays light: nothing but the probe imports torch, and the command line loads only the verb in use."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "rich.console", "altair", "jinja2", "vl_convert", "transformers", "lightning")


def modules_after(*statements: str) -> set[str]:
    code = "; ".join(
        [*statements, "import sys, json", "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"]
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(finished.stderr.splitlines()[-1]))


@pytest.mark.parametrize(
    "statement", ["import samestep", "import samestep.cli.main", "import samestep.config"]
)
def test_importing_loads_nothing_heavy(statement):
    assert not modules_after(statement) & set(HEAVY)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["config"], ["explain"]])
def test_light_verbs_load_nothing_heavy(arguments):
    run = f"import samestep.cli.main as m; m.cli.main(args={arguments!r}, standalone_mode=False)"
    assert not modules_after(run) & set(HEAVY)


def test_help_imports_no_verb():
    loaded = modules_after(
        "import samestep.cli.main as m", "m.cli.main(args=['--help'], standalone_mode=False)"
    )
    assert "samestep.cli.drill" not in loaded


@pytest.mark.parametrize(
    "module", ["samestep.drill.runner", "samestep.cli.drill", "samestep.cli.report", "samestep.cli.inspect"]
)
def test_only_the_probe_needs_torch(module):
    assert "torch" not in modules_after(f"import {module}")
