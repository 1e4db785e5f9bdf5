"""The pages about cost show what the commands print."""

from __future__ import annotations

import re
from pathlib import Path

from samestep.cost.answering import answer
from samestep.cost.example import NOTE, ten_hours
from samestep.ledger import Row
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


def test_the_ledger_of_the_three_hundred_steps_adds_up_and_has_the_rows_of_the_code():
    text = (ROOT / "docs" / "explanation" / "three-hundred-steps.md").read_text(encoding="utf-8")
    rows = re.findall(r"^([a-z-]+) +(\$[\d.]+)? +([\d.]+ m?s)$", text, re.MULTILINE)
    assert {name for name, _, _ in rows} <= {*map(str, Row), "total"}
    for column, step in ((1, 1e-6), (2, 0.05)):
        amounts = {row[0]: number(row[column]) for row in rows}
        total = amounts.pop("total")
        assert abs(sum(amounts.values()) - total) < step * len(rows)
    assert "320 steps accepted, 380 executed, 60 lost" in text


def number(text):
    """Return dollars or seconds."""
    amount = float(re.sub(r"[^\d.]", "", text) or 0)
    return amount / 1000 if text.endswith("ms") else amount
