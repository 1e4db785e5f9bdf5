"""Every defect of the zoo that belongs to saving or restoring is gone once its script uses the run API or an adapter:
the drill of the moved script finds nothing."""

import ast
import json
import os
from pathlib import Path

import pytest
from zoo_cases import alarms, load_cases

from moved_scripts import ADAPTED, drill_moved, load_moved

MOVED, REFUSED = load_moved()
PAGE = Path(__file__).parents[2] / "docs" / "zoo.md"
NOT_DRILLED = {"unwrapped", "frozen", "swapped"}
"""Cases that only show a refusal."""


def keep_row(moved, result, complaints):
    """Leave a row for the published table when a folder for rows is named."""
    folder = os.environ.get("ZOO_ROWS")
    if folder:
        row = {
            "kind": "moved",
            "framework": moved.api,
            "name": moved.shown,
            "shows": moved.shows,
            "answers": moved.answers,
            "families": moved.families,
            "scenarios": len(result["scenarios"]),
            "passed": not complaints,
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"moved-{moved.name}.json").write_text(json.dumps(row))


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("moved", [pytest.param(one, id=one.name) for one in MOVED])
def test_the_drill_of_a_moved_script_finds_nothing(moved, tmp_path):
    result = drill_moved(moved, tmp_path)
    complaints = alarms(result)
    keep_row(moved, result, complaints)
    assert complaints == []
    assert (result["criterion"]["kind"] == "exact") is not moved.noisy


def test_every_defect_of_the_zoo_is_answered_or_refused_by_a_moved_script():
    defects = {case.name for case in load_cases() if not case.clean}
    answered = {name for moved in MOVED for name in moved.answers}
    refused = {one.defect for one in REFUSED}
    assert not answered & refused
    assert answered | refused == defects


def test_every_case_of_a_moved_script_is_drilled():
    for path in ADAPTED.glob("*.py"):
        known = {moved.case for moved in MOVED if moved.script == path.stem}
        assert cases_in(path) - NOT_DRILLED == known - {""}


def cases_in(path):
    """Return the cases that a script offers."""
    for node in ast.parse(path.read_text()).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if getattr(target, "id", "") == "CASES":
            named = node.value.keys if isinstance(node.value, ast.Dict) else node.value.elts
            return {one.value for one in named}
    return set()


def test_the_page_of_the_zoo_shows_moved_scripts_with_what_they_answer():
    known = {f"`{moved.shown}`": moved for moved in MOVED}
    rows = [line.split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    shown = {first.strip("| "): others for first, *others in rows if first.strip("| ") in known}
    for script, (_, _, answers, *_, verdict) in shown.items():
        assert answers == ", ".join(f"`{name}`" for name in known[script].answers)
        assert verdict == "holds |"
    assert "`plain.py --case state`" in shown
