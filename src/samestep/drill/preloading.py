"""Restarts forked from a process that has imported the run's libraries, each kind of result confirmed by a fresh one.

Most of the time of a restart goes into imports. A fork of a process that has done nothing else saves it. What such a
fork could hide (hash seeds that are shared, a library that counts its forks) is looked for: whatever kind of result
shows for the first time is shown again by a truly fresh process before it is believed.
"""

from __future__ import annotations

import os
import re
import threading
import zlib
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from samestep import probe
from samestep.contract import Family
from samestep.drill.attempt import STACKS
from samestep.drill.command import CHECKPOINT, OUT, restart_command
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.scenario import Arrangement
from samestep.errors import MachineError
from samestep.process import Preloaded, PythonCommand
from samestep.trace import ORDERS_VARIABLE
from samestep.trace.reading import read_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samestep.drill.ground import ControlRun, Workshop
    from samestep.drill.result import ScenarioResult
    from samestep.drill.scenario import Scenario

FEWEST = 8
"""Restarts below which importing the libraries once more does not pay."""

SAMPLE = 50
"""One in so many forks of a known kind is checked all the same."""

ENVIRONMENTS = ("site-packages", "dist-packages")

Kind = tuple[str, ...]

_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b")


def preload(workshop: Workshop, first: ControlRun) -> Preloaded | None:
    """Start the preloaded process for a run as its first control showed it; None where attempts must be fresh."""
    command = PythonCommand.parse(restart_command(workshop.options, OUT, CHECKPOINT))
    trained = first.record.traces
    only_seat = workshop.site.isolation.mode == "sequential"  # a preloaded process would never leave it
    if command is None or len(trained) != 1 or only_seat:
        return None
    listed = read_modules(workshop.options.run_folder / "traces" / first.record.name, trained[0].header.pid)
    libraries, local = sort_modules(listed, [workshop.site.seat, workshop.options.project])
    if not libraries:
        return None
    machine = workshop.site.machine("preloaded")
    surroundings = machine.environment({**STACKS, **os.environ, **workshop.threads, **workshop.options.env})
    env = probe.environment(Path("orders"), surroundings)
    del env[ORDERS_VARIABLE]
    try:
        return Preloaded.start(
            command,
            libraries,
            machine=machine,
            env=env,
            log_path=workshop.options.run_folder / "logs" / "preloaded.log",
            local=local,
            prelude=probe.prelude(),
        )
    except MachineError as error:
        log = workshop.options.run_folder / "logs" / "preloaded.log"
        log.write_text(f"every restart is fresh: {error}\n", encoding="utf-8")
        machine.destroy()
        return None


def sort_modules(listed: list[tuple[str, str]], projects: list[Path]) -> tuple[list[str], list[str]]:
    """Tell the libraries' modules from the project's own.

    Args:
        listed: names and files of modules, in the order of their import.
        projects: folders of the project, as machines see it and in the original.

    Returns:
        Names of library modules in that order, and the top-level names of the project's own.
    """
    libraries, local = [], set()
    for name, origin in listed:
        installed = any(part in ENVIRONMENTS for part in Path(origin).parts)
        if not installed and any(Path(origin).is_relative_to(folder) for folder in projects):
            local.add(name.partition(".")[0])
        elif os.sep in origin and not name.startswith(("_samestep", "__")):
            libraries.append(name)
    return [name for name in libraries if name.partition(".")[0] not in local], sorted(local)


class Forks:
    """Restarts forked from a preloaded process while they can be trusted.

    Args:
        workshop: where to work.
        first: the first control, which shows what is to be imported.

    Attributes:
        trusted: no fork has shown anything else than a fresh process.
    """

    def __init__(self, workshop: Workshop, first: ControlRun) -> None:
        self.trusted = not workshop.options.fresh
        self._workshop = workshop
        self._first = first
        self._agreed: dict[Kind, Future[bool]] = {}
        self._lock = threading.Lock()
        self._preloaded: Preloaded | None = None
        self._starter: threading.Thread | None = None

    def prepare(self, scenarios: Sequence[Scenario]) -> None:
        """Start the preloaded process beside what else goes on, when enough of ``scenarios`` can use it."""
        if self.trusted and sum(can_fork(scenario) for scenario in scenarios) >= FEWEST:
            self._starter = threading.Thread(target=self._start, name="preload")
            self._starter.start()

    def _start(self) -> None:
        if not self._workshop.stop.is_set():
            self._preloaded = preload(self._workshop, self._first)

    def close(self) -> None:
        """End the preloaded process."""
        if self._starter is not None:
            self._starter.join()
        if self._preloaded is not None:
            self._preloaded.close()

    def run(self, scenario: Scenario, run: Callable[[Preloaded | None], ScenarioResult]) -> ScenarioResult:
        """Run a scenario forked where possible, and afresh when its kind of result was not seen before.

        Args:
            scenario: what is run.
            run: carries it out, forked from a preloaded process or, with None, afresh.

        Returns:
            The result; of the fresh process where there was one.
        """
        if not can_fork(scenario) or self._starter is None:
            return run(None)
        self._starter.join()
        if self._preloaded is None or not self.trusted:
            return run(None)
        try:
            forked = run(self._preloaded)
        except MachineError:  # the preloaded process is gone: what it was to do is done afresh
            self.trusted = False
            return run(None)
        forked.forked = True
        kind = kind_of(scenario, forked)
        agreed, is_first = self._agreement(kind)
        if not is_first and not _is_sampled(scenario):
            return forked if agreed.result() else run(None)
        agrees = False
        try:
            fresh = run(None)
            agrees = kind_of(scenario, fresh) == kind
        finally:
            if is_first:
                agreed.set_result(agrees)
        if not agrees:
            self.trusted = False
            evidence = (
                f"forked: {forked.observed.outcome} ({forked.observed.summary}); the fresh process counts"
            )
            fresh.findings.append(finding("fork-differs", evidence))
        return fresh

    def _agreement(self, kind: Kind) -> tuple[Future[bool], bool]:
        """Return whether a fresh process has shown this kind too, known sooner or later, and whether to find it out."""
        with self._lock:
            is_first = kind not in self._agreed
            return self._agreed.setdefault(kind, Future()), is_first


def can_fork(scenario: Scenario) -> bool:
    """Say whether a scenario's restart may be forked: cuts and notices are few, and are always restarted afresh."""
    return scenario.family in {Family.DAMAGE, Family.CRASH} and scenario.arrangement is Arrangement.SNAPSHOT


def kind_of(scenario: Scenario, result: ScenarioResult) -> Kind:
    """Return what makes a result the same kind as another: outcome, findings, error and the file that was hit."""
    slugs = sorted(record.slug for record in result.findings)
    errors = sorted({error for record in result.findings for error in _ERROR.findall(record.evidence)})
    hit = result.crash.file if result.crash else ""
    return (str(scenario.family), hit, str(result.observed.outcome), *slugs, *errors)


def _is_sampled(scenario: Scenario) -> bool:
    """Say whether a fork is checked although its kind is known: the same ones every time."""
    return zlib.crc32(scenario.name.encode()) % SAMPLE == 0
