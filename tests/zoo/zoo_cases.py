"""Drilling a case of the zoo: shared by the tests and by the script that writes the published table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ZOO = Path(__file__).parent
TIMEOUT_SECONDS = 800


@dataclass(frozen=True)
class ZooCase:
    """One script of the zoo and what its drill must say; see the head of ``zoo.toml``."""

    name: str
    script: str
    framework: str
    defect: str = ""
    bugs: list[str] = field(default_factory=list)
    components: list[str] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    outcome: str = "same"
    first_bad: str = ""
    families: list[str] = field(default_factory=lambda: ["cut"])
    args: list[str] = field(default_factory=list)
    resume_with: str = ""
    also: str | list[str] = ""
    launcher: list[str] = field(default_factory=list)
    drill_args: list[str] = field(default_factory=list)
    best: bool = False
    sample: bool = False
    twin: bool = False
    clean: bool = False
    noisy: bool = False

    def command(self, *, twin: bool) -> list[str]:
        """Return the training command, run from a copy of the zoo."""
        start = self.launcher or [sys.executable]
        return [*start, self.script, "--out", "{out}", *self.args, *(["--twin"] if twin else [])]


def load_cases() -> list[ZooCase]:
    """Read the registry."""
    with (ZOO / "zoo.toml").open("rb") as file:
        return [ZooCase(**row) for row in tomllib.load(file)["case"]]


def drill_case(case: ZooCase, folder: Path, *, twin: bool) -> dict[str, Any]:
    """Drill a case (or its twin) from a copy of the zoo in ``folder`` and return ``drill.json``."""
    shutil.copytree(ZOO, folder / "zoo", ignore=shutil.ignore_patterns("test_*", "__pycache__", "*.toml"))
    words = ["--only", ",".join(case.families)]
    if case.resume_with:
        words += ["--resume-with", case.resume_with]
    for also in [case.also] if isinstance(case.also, str) else case.also:
        words += ["--also", also] if also else []
    return drilled([*words, *case.drill_args, "--", *case.command(twin=twin)], folder / "zoo")


def drilled(words: list[str], folder: Path, timeout_seconds: int = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Run ``samestep drill`` in a folder, one attempt at a time, and return ``drill.json``."""
    done = subprocess.run(
        [sys.executable, "-m", "samestep.cli.main", "drill", "--json", "--jobs", "1", *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=timeout_seconds,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    if not done.stdout.startswith("{"):
        raise AssertionError(f"exit {done.returncode}\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def defects(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return all findings of a drill that count as defects."""
    found = [*result["findings"], *(f for item in result["scenarios"] for f in item["findings"])]
    return [finding for finding in found if finding["severity"] == "defect"]


def missed(case: ZooCase, result: dict[str, Any]) -> list[str]:
    """Say what the drill of a defect failed to name; empty when it was caught."""
    found = defects(result)
    named = {component for finding in found for component in finding["components"]}
    slugs = {finding["slug"] for finding in found}
    complaints = [
        f"component {name} was not named (named: {sorted(named)})"
        for name in case.components
        if name not in named
    ]
    if not slugs & set(case.findings):
        complaints.append(f"none of {case.findings} among {sorted(slugs)}")
    if result["exit_code"] != 1:
        complaints.append(f"exit code {result['exit_code']}")
    return complaints


def alarms(result: dict[str, Any]) -> list[str]:
    """Say what was wrong with a clean run; empty when it passed."""
    lines = [
        f"{item['name']}: {item['observed']['outcome']} {item['observed']['summary']} "
        f"{[(f['slug'], f['evidence']) for f in item['findings'] if f['severity'] != 'note']}"
        for item in result["scenarios"]
        if not item["holds"]
    ]
    lines += [f"{finding['slug']}: {finding['evidence']}" for finding in result["findings"]]
    if result["exit_code"] != 0:
        lines.append(f"exit code {result['exit_code']}")
    return lines


def caught_at(result: dict[str, Any]) -> tuple[str, str, str]:
    """Return outcome, component and step of the first scenario that shows the defect."""
    for item in result["scenarios"]:
        for finding in item["findings"]:
            if finding["severity"] == "defect":
                step = (
                    finding["step"]
                    if finding["step"] is not None
                    else item["observed"]["first_divergent_step"]
                )
                return (
                    item["observed"]["outcome"],
                    ", ".join(finding["components"]),
                    "" if step is None else str(step),
                )
    slugs = [finding for finding in result["findings"] if finding["severity"] == "defect"]
    return (
        (result["outcome"], ", ".join(slugs[0]["components"]), "") if slugs else (result["outcome"], "", "")
    )
