"""Every defect of the zoo is caught with its component named, and every clean twin passes."""

import json
import os
from pathlib import Path

import pytest
from zoo_cases import alarms, caught_at, drill_case, load_cases, missed

CASES = load_cases()


def picked(cases):
    """Mark all but the sample as belonging to the full run."""
    return [pytest.param(case, id=case.name, marks=() if case.sample else pytest.mark.full) for case in cases]


def keep_row(kind, case, result, complaints):
    """Leave a row for the published table when a folder for rows is named."""
    folder = os.environ.get("ZOO_ROWS")
    if folder:
        outcome, component, step = caught_at(result)
        row = {
            "name": case.name,
            "kind": kind,
            "framework": case.framework,
            "defect": case.defect,
            "outcome": outcome,
            "component": component,
            "step": step,
            "exit_code": result["exit_code"],
            "passed": not complaints,
            "scenarios": len(result["scenarios"]),
        }
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{kind}-{case.name}.json").write_text(json.dumps(row))


@pytest.mark.parametrize("case", picked(case for case in CASES if not case.clean))
def test_the_defect_is_caught_and_its_component_named(case, tmp_path):
    result = drill_case(case, tmp_path, twin=False)
    complaints = missed(case, result)
    keep_row("defect", case, result, complaints)
    assert complaints == []


@pytest.mark.parametrize("case", picked(case for case in CASES if case.twin))
def test_the_clean_twin_passes(case, tmp_path):
    result = drill_case(case, tmp_path, twin=True)
    complaints = alarms(result)
    keep_row("twin", case, result, complaints)
    assert complaints == []


@pytest.mark.parametrize("case", picked(case for case in CASES if case.clean))
def test_a_clean_script_raises_no_alarm(case, tmp_path):
    result = drill_case(case, tmp_path, twin=False)
    complaints = alarms(result)
    keep_row("clean", case, result, complaints)
    assert complaints == []
