"""The pages about cost show what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

from samestep.cost.answering import answer
from samestep.cost.example import NOTE, ten_hours
from samestep.report.cost import render_cost

ROOT = Path(__file__).parents[2]
TRANSCRIPT = re.compile(r"<!-- transcript: samestep cost example -->\n```\n(.*?)```", re.DOTALL)


def test_the_example_in_the_readme_is_what_is_printed():
    """Lines may be left out, marked by three dots; those that are shown are real."""
    printed = render_cost(answer(ten_hours(), notes=[NOTE])).splitlines()
    shown = TRANSCRIPT.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    for line in "".join(shown).splitlines():
        assert line == "..." or line in printed, line


def test_the_table_of_other_tools_has_the_numbers_of_the_example():
    text = (ROOT / "docs" / "explanation" / "cost.md").read_text(encoding="utf-8")
    spot = answer(ten_hours()).offers[0].spot
    assert f"| `samestep cost` | ${spot.money.total:.2f}, 30 % less; machines $7.00 |" in text
