"""What a drill tells the probes of one attempt: a small JSON file, named by one environment variable."""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

ORDERS_VARIABLE = "SAMESTEP_ORDERS"
"""Environment variable with the path of the orders; its presence switches the probe on."""

XXHASH_VARIABLE = "SAMESTEP_XXHASH"
"""Environment variable with the folder of samestep's own xxhash package, for scripts that have none."""


def xxhash_folder() -> str:
    """Return the folder of samestep's xxhash as told by the environment; empty when none is."""
    return os.environ.get(XXHASH_VARIABLE, "")


@dataclass(frozen=True)
class ParkPoint:
    """A place where every rank stops and waits until the drill lets it go on.

    Attributes:
        where: ``boundary`` (``step`` steps are complete, the next forward is about to begin), ``update`` (inside
            step number ``step``: gradients are there, the optimizer has not been called) or ``micro`` (inside step
            ``step``, before its micro-step number ``micro``, counted from 1).
        step: step number of this process, from 1 (``boundary`` 0: before the first forward).
        micro: for ``micro`` only.
    """

    where: str
    step: int
    micro: int = 0

    @property
    def name(self) -> str:
        """File-name friendly name, e.g. ``boundary-8``."""
        return f"{self.where}-{self.step}" + (f"-{self.micro}" if self.micro else "")


@dataclass
class Orders:
    """Orders for the probes of one attempt.

    A probe that reaches a park point writes ``<trace_folder>/<point name>.rank<R>.waiting`` (holding its pid)
    and goes on as soon as ``<trace_folder>/<point name>.go`` exists.

    Attributes:
        attempt: name of the attempt.
        trace_folder: where traces, boot marks and park files go.
        durable: the durable folder, watched for changes and reads.
        step_limit: end the process (exit code 0, no further code of the script) once that many steps are complete;
            0: never.
        park: points to stop at.
        sabotage: what to damage once, at the first step boundary: ``optimizer``, ``schedule``, ``data``, ``rng`` or "".
        watch: False leaves only step counting and ``step_limit`` (the proof that watching does not change the run).
        sample_values: numbers sampled per quantity (see ``Quantity.sample``); 0: none.
        full_digest_every: digest whole contents at every n-th step, and samples only in between.
        marks: tell a recorder of file operations of every completed step (see ``trace.marks``).
        looks: folder for what lies under the durable folder at every file event of rank 0 (see ``probe.looks``); empty:
            nobody looks. Needs ``marks``.
        list_modules: write the imported modules to ``<trace_folder>/modules-<pid>.json`` when the process ends.
    """

    attempt: str
    trace_folder: str
    durable: str = ""
    step_limit: int = 0
    park: list[ParkPoint] = field(default_factory=list)
    sabotage: str = ""
    watch: bool = True
    sample_values: int = 1024
    full_digest_every: int = 1
    marks: bool = False
    looks: str = ""
    list_modules: bool = False

    def write(self, path: Path) -> None:
        """Write the orders as JSON to ``path``."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Orders:
        """Read orders back.

        Raises:
            OSError, ValueError, TypeError: the file is missing or no orders.
        """
        data = json.loads(path.read_text(encoding="utf-8"))
        data["park"] = [ParkPoint(**point) for point in data.get("park", [])]
        return cls(**data)
