"""Restarts forked from a process that has imported the run's libraries, each kind of result confirmed by a fresh one.

Most of the time of a restart goes into imports. A fork of a process that has done nothing else saves it. What such a
fork could hide (hash seeds that are shared, a library that counts its forks) is looked for: whatever kind of result
shows for the first time is shown again by a truly fresh process before it is believed, and so is a sample of the rest.
Where a later one of the sample disagrees, what was believed of its kind is restarted in fresh processes after all.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from samestep import probe
from samestep.contract import Family, Outcome
from samestep.drill.attempt import STACKS
from samestep.drill.command import CHECKPOINT, OUT, restart_command
from samestep.drill.execute import FRESH, Origins
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.result import Observation, ScenarioResult
from samestep.drill.scenario import Arrangement
from samestep.errors import ForkError, MachineError
from samestep.process import Preloaded, PythonCommand
from samestep.trace import ORDERS_VARIABLE
from samestep.trace.reading import read_modules

if TYPE_CHECKING:
    from samestep.drill.ground import ControlRun, Workshop
    from samestep.drill.scenario import Scenario

FEWEST = 8
"""Restarts below which importing the libraries once more does not pay."""

SAMPLE = 50
"""One in so many forks of a known kind is checked all the same."""

ENVIRONMENTS = ("site-packages", "dist-packages")

OWN = Path(probe.__file__).parent

DOUBTED = "forked, and of a kind that a fresh process did not show where it was confirmed"

Kind = tuple[str, ...]
Run = Callable[[Origins], ScenarioResult]

_ERROR = re.compile(r"\b\w*(?:Error|Exception)\b")


def preload(workshop: Workshop, first: ControlRun, tell: Callable[[str], None]) -> Preloaded | None:
    """Start the preloaded process for a run as its first control showed it; None where attempts must be fresh.

    Args:
        workshop: where to work.
        first: the first control, which shows what is to be imported.
        tell: is told why forks cannot be made although the run is of a kind that they could be made for.
    """
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
        tell(f"every restart imports its libraries anew: {error.message}")
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
        if Path(origin).is_relative_to(
            OWN
        ):  # the probe, also where the project that is drilled is samestep's own
            continue
        installed = any(part in ENVIRONMENTS for part in Path(origin).parts)
        if not installed and any(Path(origin).is_relative_to(folder) for folder in projects):
            local.add(name.partition(".")[0])
        elif os.sep in origin and not name.startswith(("_samestep", "__")):
            libraries.append(name)
    return [name for name in libraries if name.partition(".")[0] not in local], sorted(local)


@dataclass
class _Belief:
    """What is thought of one kind of result of forks.

    Attributes:
        confirmed: a fresh process has shown it.
        doubted: a fresh process has not shown it: the one that the first of them was given, or a later one.
        believed: forked results that count, each with what runs its scenario afresh.
    """

    confirmed: bool = False
    doubted: bool = False
    believed: list[tuple[ScenarioResult, Run]] = field(default_factory=list)


class Forks:
    """Restarts forked from a preloaded process while they can be trusted.

    Args:
        workshop: where to work.
        first: the first control, which shows what is to be imported.
        tell: is told why every restart has to be a fresh process.

    Attributes:
        trusted: no fork has shown anything else than a fresh process.
    """

    def __init__(self, workshop: Workshop, first: ControlRun, tell: Callable[[str], None]) -> None:
        self.trusted = not workshop.options.fresh
        self._workshop = workshop
        self._first = first
        self._tell = tell
        self._beliefs: dict[Kind, _Belief] = {}
        self._doubtful: list[tuple[ScenarioResult, Run]] = []
        self._lock = threading.Lock()
        self._preloaded: Preloaded | None = None
        self._starter: threading.Thread | None = None

    def prepare(self, restarts: int) -> None:
        """Start the preloaded process beside what else goes on, when so many restarts can use it that it pays."""
        if self._starter is None and self.trusted and restarts >= FEWEST:
            self._starter = threading.Thread(target=self._start, name="preload")
            self._starter.start()

    def _start(self) -> None:
        if not self._ending():
            self._preloaded = preload(self._workshop, self._first, self._tell)

    def close(self) -> None:
        """End the preloaded process."""
        if self._starter is not None:
            self._starter.join()
        if self._preloaded is not None:
            self._preloaded.close()

    def run(self, scenario: Scenario, run: Run) -> ScenarioResult:
        """Run a scenario forked where possible, and afresh when its kind of result was not seen before.

        Args:
            scenario: what is run.
            run: carries it out, its processes forked from a preloaded one or fresh.

        Returns:
            The result; of the fresh process where there was one. One of a fork whose kind falls into doubt later is
            turned into that of a fresh process, in place, before the last call returns.
        """
        if not can_fork(scenario):
            return self._with_forked_beginning(run) if can_begin_forked(scenario) else run(FRESH)
        result = self._tried(scenario, run)
        self._restart_doubtful()
        return result

    def _source(self) -> Preloaded | None:
        """Return the preloaded process, once it is up, while forks of it are trusted."""
        if self._starter is not None:
            self._starter.join()
        return self._preloaded if self.trusted else None

    def _with_forked_beginning(self, run: Run) -> ScenarioResult:
        """Run what is cut as a fork, what restarts afresh; all of it afresh unless that is the same to the last bit."""
        source = self._source()
        if source is None:
            return run(FRESH)
        try:
            result = run(Origins(before=source))
        except ForkError:
            self.trusted = False
            return run(FRESH)
        return result if result.holds and not result.findings else run(FRESH)

    def _tried(self, scenario: Scenario, run: Run) -> ScenarioResult:
        source = self._source()
        if source is None:
            return run(FRESH)
        try:
            forked = run(Origins(restart=source))
        except ForkError:  # what it was to do is done afresh
            self.trusted = False
            return run(FRESH)
        forked.forked = True
        kind = kind_of(scenario, forked)
        with self._lock:
            is_first = kind not in self._beliefs
            belief = self._beliefs.setdefault(kind, _Belief())
        if is_first or _is_sampled(scenario):
            return self._confirmed(scenario, forked, run, belief)
        # not waited for: what is shown to be wrong while the first is confirmed, or later, is taken back
        return forked if self._believe(belief, forked, run) else run(FRESH)

    def _confirmed(
        self, scenario: Scenario, forked: ScenarioResult, run: Run, belief: _Belief
    ) -> ScenarioResult:
        """Return what a fresh process shows; where it is not the fork's, the kind of that one is in doubt."""
        try:
            fresh = run(FRESH)
        except BaseException:
            if not self._ending():
                self._doubt(belief)
            raise
        if self._ending():
            return fresh
        if kind_of(scenario, fresh) == kind_of(scenario, forked):
            belief.confirmed = True
        else:
            again, was = self._doubt(belief), forked.observed
            evidence = f"forked: {was.outcome} ({was.summary}); the fresh process counts"
            more = [f"earlier results of this kind that are restarted in fresh processes: {again}"]
            fresh.findings.append(finding("fork-differs", evidence, details=more if again else []))
        return fresh

    def _ending(self) -> bool:
        """Say whether the drill is being ended: a fresh process that was killed for that says nothing."""
        return self._workshop.stop.is_set()

    def unconfirmed(self) -> set[str]:
        """Return the names of scenarios that count only when a fresh process, still to come, shows their kind."""
        with self._lock:
            open_ones = [belief.believed for belief in self._beliefs.values() if not belief.confirmed]
        return {result.name for believed in open_ones for result, _ in believed}

    def _believe(self, belief: _Belief, forked: ScenarioResult, run: Run) -> bool:
        """Let a fork's result count unless its kind has fallen into doubt meanwhile; whether it does."""
        with self._lock:
            if not belief.doubted:
                belief.believed.append((forked, run))
            return not belief.doubted

    def _doubt(self, belief: _Belief) -> int:
        """Take back what was believed of a kind, and return how many results that are: nothing is known of them now."""
        self.trusted = False
        with self._lock:
            belief.doubted = True
            taken_back, belief.believed = belief.believed, []
            for result, _ in taken_back:
                result.observed = Observation(outcome=Outcome.INCONCLUSIVE, summary=DOUBTED)
                result.holds, result.findings, result.series = False, [], []
            self._doubtful += taken_back
        return len(taken_back)

    def _restart_doubtful(self) -> None:
        """Restart what was taken back in fresh processes; every thread that comes by takes its part."""
        while self._doubtful and not self._ending():
            with self._lock:
                taken = self._doubtful.pop() if self._doubtful else None
            if taken is not None:
                result, run = taken
                # one that cannot be carried out stays inconclusive and must not cost the scenario that came by
                with contextlib.suppress(Exception):
                    fresh = run(FRESH)
                    if not self._ending():
                        _become(result, fresh)


def _become(result: ScenarioResult, other: ScenarioResult) -> None:
    """Take over all that another result of the same scenario says; how to repeat it stays."""
    for name in set(other.__struct_fields__) - {"replay"}:
        setattr(result, name, getattr(other, name))


def can_fork(scenario: Scenario) -> bool:
    """Say whether a scenario's restart may be forked: cuts and notices are few, and are always restarted afresh."""
    arranged = scenario.arrangement in {Arrangement.SNAPSHOT, Arrangement.FAULT}
    return scenario.family in {Family.DAMAGE, Family.CRASH} and arranged


def can_begin_forked(scenario: Scenario) -> bool:
    """Say whether what comes before the restart may be forked: a run that is killed and leaves what was compared."""
    return scenario.arrangement in {Arrangement.KILL, Arrangement.TWICE}


def kind_of(scenario: Scenario, result: ScenarioResult) -> Kind:
    """Return what makes a result the same kind as another: outcome, findings, error and the file that was hit."""
    slugs = sorted(record.slug for record in result.findings)
    errors = sorted({error for record in result.findings for error in _ERROR.findall(record.evidence)})
    hit = result.crash.file if result.crash else ""
    return (str(scenario.family), hit, str(result.observed.outcome), *slugs, *errors)


def _is_sampled(scenario: Scenario) -> bool:
    """Say whether a fork is checked although its kind is known: the same ones every time."""
    return zlib.crc32(scenario.name.encode()) % SAMPLE == 0
