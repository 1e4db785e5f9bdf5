"""The numbers of a training: JSON lines beside the journal, and passed on to whoever else wants them."""

from __future__ import annotations

import importlib
import json
import math
import sys
import time
from typing import TYPE_CHECKING, Any

from samestep.bundle.identity import utc_text
from samestep.journal.durable import make_folder

from .errors import RunError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

Sink = "Callable[[int, Mapping[str, float]], None]"
TENSORBOARD, WANDB = "tensorboard", "wandb"

_BUFFER = 200
_BUFFER_SECONDS = 1.0


class Scalars:
    """Writes scalars by step, a line each, and passes them on.

    Tensors are read when the buffer is written, so that logging a loss does not make the training wait for a device.

    Args:
        path: of the file; it is begun with the first line.
        sinks: called with every step and its numbers.

    Attributes:
        latest: the numbers logged last, by name.
        problem: what kept lines from being written, which is no reason to stop a training; empty while nothing has.
    """

    def __init__(self, path: Path, sinks: Sequence[Any] = ()) -> None:
        self.path = path
        self._sinks = list(sinks)
        self._waiting: list[tuple[int, str, dict[str, Any]]] = []
        self._written = time.monotonic()
        self.latest: dict[str, float] = {}
        self.problem = ""

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Keep numbers of a step; tensors of one element count as numbers.

        Raises:
            RunError: a value is no number.
        """
        held = {name: _held(name, value) for name, value in values.items()}
        self._waiting.append((step, utc_text(), held))
        if len(self._waiting) >= _BUFFER or time.monotonic() - self._written >= _BUFFER_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write and pass on what is waiting.

        Raises:
            RunError: a value is no number.
        """
        waiting, self._waiting = self._waiting, []
        self._written = time.monotonic()
        lines = []
        for step, at, held in waiting:
            numbers = {name: _number(name, value) for name, value in held.items()}
            self.latest |= numbers
            for sink in self._sinks:
                sink(step, numbers)
            lines.append(json.dumps({"step": step, "at": at, **{n: _shown(v) for n, v in numbers.items()}}))
        if lines:
            self._append("\n".join(lines) + "\n")

    def _append(self, text: str) -> None:
        try:
            make_folder(self.path.parent)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self.problem = f"{self.path} cannot be written: {error.strerror}"


def sinks_of(log_to: str | Sequence[Any] | None, folder: Path) -> list[Any]:
    """Return what scalars are passed on to.

    Args:
        log_to: ``tensorboard``, ``wandb``, functions of a step and its numbers, or several of these. None to pass
            them on to a W&B run that the script has begun, if there is one.
        folder: where TensorBoard files go.

    Raises:
        RunError: it names something else, or what is not installed.
    """
    if log_to is None:
        wandb = sys.modules.get(WANDB)
        return [_wandb] if getattr(wandb, "run", None) is not None else []
    wanted = [log_to] if isinstance(log_to, str) or callable(log_to) else list(log_to)
    return [_sink(one, folder) for one in wanted]


def _sink(wanted: Any, folder: Path) -> Any:
    if callable(wanted):
        return wanted
    if wanted not in (TENSORBOARD, WANDB):
        raise RunError(f"log_to={wanted!r} is unknown", hint=f"{TENSORBOARD}, {WANDB}, or a function")
    try:
        importlib.import_module(str(wanted))
    except ImportError as error:
        raise RunError(
            f"log_to={wanted!r}: {wanted} is not installed", hint=f"pip install {wanted}"
        ) from error
    return _wandb if wanted == WANDB else _tensorboard(folder)


def _tensorboard(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder))

    def write(step: int, numbers: Mapping[str, float]) -> None:
        for name, number in numbers.items():
            writer.add_scalar(name, number, step)
        writer.flush()

    return write


def _wandb(step: int, numbers: Mapping[str, float]) -> None:
    sys.modules[WANDB].log(dict(numbers), step=step)


def _held(name: str, value: Any) -> Any:
    """Return a number, or a copy of a tensor: its number is not read yet, and the script may go on adding to it."""
    if hasattr(value, "detach") and value.numel() == 1:
        return value.detach().clone()
    return _number(name, value)


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise RunError(f"run.log({name}=…) was given {value!r:.60}, which is no number") from error


def _shown(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)
