"""What a drill is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.contract import Family
    from samestep.drill.result import DrillResult

DEFAULT_MODELS = ("kill", "power-ext4")


@dataclass(frozen=True, kw_only=True)
class DrillOptions:
    """A drill's settings, already merged from flags, environment and files.

    Attributes:
        command: the training command; ``{out}`` stands for the durable folder.
        project: folder that is copied onto every machine; the command's working folder lies inside it.
        working_folder: where the command is started, relative to ``project``.
        run_folder: where results are written.
        durable: path inside the project that the script writes to, when the command has no ``{out}``.
        resume_with: full command or extra arguments of a restart; empty: the same command.
        also: extra arguments to try after a cut, one transfer scenario each.
        steps: end the script after that many steps; 0: it ends by itself.
        verify_steps: steps compared after a resume.
        grace_seconds: time between a notice and the end.
        jobs: attempts at a time.
        timeout_seconds: longest time of one attempt.
        inputs: read-only folders or files shared by all machines.
        allow_network: leave trackers and hubs reachable.
        fresh: start every restart in a fresh process, none as a fork of a preloaded one.
        strict: notes count like defects.
        silence: slugs of findings that are intended and do not count.
        env: environment variables for every attempt.
        project_files: globs of the files copied onto every machine; empty: what git knows or does not ignore.
        only: scenario families to run; empty: all.
        models: persistence models of the family ``crash``.
        max_states: most disk states of the family ``crash`` that are restarted; 0: none.
        storage: file system whose guarantees count; empty: that of the project.
        earlier: what an interrupted drill of the same command has left; its results are used where they still hold.
        replay: run only the scenario of this name.
        work_dir: where machines are built; None: the system's temporary folder.
        sample_values: numbers sampled per quantity for noisy runs.
        full_digest_every: digest whole contents at every n-th step only.
        origins: where each setting that is no default came from: a flag, a variable, a file and line.
    """

    command: list[str]
    project: Path
    working_folder: str = "."
    run_folder: Path
    durable: str = ""
    resume_with: list[str] = field(default_factory=list)
    also: list[list[str]] = field(default_factory=list)
    steps: int = 0
    verify_steps: int = 4
    grace_seconds: float = 30.0
    jobs: int = 0
    timeout_seconds: float = 600.0
    inputs: list[Path] = field(default_factory=list)
    allow_network: bool = False
    fresh: bool = False
    strict: bool = False
    silence: frozenset[str] = frozenset()
    env: dict[str, str] = field(default_factory=dict)
    project_files: list[str] = field(default_factory=list)
    only: frozenset[Family] = frozenset()
    models: list[str] = field(default_factory=lambda: list(DEFAULT_MODELS))
    max_states: int = 32
    storage: str = ""
    earlier: DrillResult | None = None
    replay: str = ""
    work_dir: Path | None = None
    sample_values: int = 1024
    full_digest_every: int = 1
    origins: dict[str, str] = field(default_factory=dict)

    def wants(self, family: Family) -> bool:
        """Say whether scenarios of ``family`` are to run."""
        return not self.only or family in self.only
