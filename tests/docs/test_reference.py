"""The docs say what the code does: pages made from it are current, and nothing is left undocumented."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from samestep.cli.main import VERBS
from samestep.config import SETTING_NAMES, describe_setting
from samestep.contract import FINDINGS, Outcome
from samestep.errors import ExitCode

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Write all pages in a process of its own: click remembers how a command was called before."""
    folder = tmp_path_factory.mktemp("reference")
    subprocess.run([sys.executable, ROOT / "scripts" / "write_reference.py", folder], check=True)
    return folder


def test_pages_written_from_the_code_are_current(written):
    old = [
        page.name
        for page in sorted(written.iterdir())
        if (DOCS / "reference" / page.name).read_text(encoding="utf-8") != page.read_text(encoding="utf-8")
    ]
    assert not old, "run: make reference"


def test_every_verb_has_help_and_is_documented():
    page = (DOCS / "reference" / "cli.md").read_text(encoding="utf-8")
    for verb, (_, text) in VERBS.items():
        assert text
        assert f"## samestep {verb}\n" in page


def test_every_setting_has_a_description_and_is_documented():
    page = (DOCS / "reference" / "configuration.md").read_text(encoding="utf-8")
    for name in SETTING_NAMES:
        assert describe_setting(name).endswith(".")
        assert f"| `{name}` |" in page


def test_every_exit_code_is_documented():
    page = (DOCS / "reference" / "exit-codes.md").read_text(encoding="utf-8")
    for code in ExitCode:
        assert f"| {int(code)} | `{code.name}` |" in page


def test_every_outcome_is_explained():
    page = (DOCS / "explanation" / "how-a-drill-works.md").read_text(encoding="utf-8")
    for outcome in Outcome:
        assert f"| `{outcome}` |" in page


def test_every_finding_is_in_the_index():
    page = (DOCS / "reference" / "findings.md").read_text(encoding="utf-8")
    for slug in FINDINGS:
        assert f"[{slug}](../findings/{slug}.md)" in page
