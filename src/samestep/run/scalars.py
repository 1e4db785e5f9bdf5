"""The numbers of a training: JSON lines beside the journal, and passed on to whoever else wants them."""

from __future__ import annotations

import contextlib
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
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

Sink = "Callable[[int, Mapping[str, float]], None]"
TENSORBOARD, WANDB = "tensorboard", "wandb"

_BUFFER = 200
_BUFFER_SECONDS = 1.0


class Unreceived(Exception):  # noqa: N818 - what happened reads better than a suffix
    """A package that numbers are passed on to has failed."""


class Scalars:
    """Writes scalars by step, a line each, and passes them on.

    Tensors are read when the buffer is written, so that logging a loss does not make the training wait for a device.

    Args:
        path: of the file; it is begun with the first line.
        sinks: called with every step and its numbers.

    Attributes:
        latest: the numbers logged last, by name.
        problem: what kept lines from being written or passed on, which is no reason to stop a training; empty while
            nothing has.
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
            self._pass_on(step, numbers)
            lines.append(json.dumps({"step": step, "at": at, **{n: _shown(v) for n, v in numbers.items()}}))
        if lines:
            self._append("\n".join(lines) + "\n")

    def _pass_on(self, step: int, numbers: Mapping[str, float]) -> None:
        """Call every sink; errors of a function that the user wrote are the user's to see."""
        for sink in self._sinks:
            try:
                sink(step, numbers)
            except Unreceived as error:
                self.problem = str(error)

    def _append(self, text: str) -> None:
        try:
            make_folder(self.path.parent)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            self.problem = f"{self.path} cannot be written: {error.strerror}"


def sinks_of(log_to: str | Sequence[Any] | None, folder: Path, step: int = 0) -> list[Any]:
    """Return what scalars are passed on to.

    Args:
        log_to: ``tensorboard``, ``wandb``, functions of a step and its numbers, or several of these. None to pass
            them on to a W&B run that the script has begun, if there is one.
        folder: where TensorBoard files go.
        step: that the attempt goes on from: TensorBoard drops what an interrupted attempt logged beyond.

    Raises:
        RunError: it names something else, what is not installed, or W&B without a run.
    """
    if log_to is None:
        return [_wandb] if _has_wandb_run() else []
    wanted = [log_to] if isinstance(log_to, str) or callable(log_to) else list(log_to)
    return [_sink(one, folder, step) for one in wanted]


def _sink(wanted: Any, folder: Path, step: int) -> Any:
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
    if wanted == TENSORBOARD:
        return _tensorboard(folder, step)
    if not _has_wandb_run():
        raise RunError(
            "log_to='wandb', and no W&B run has begun", hint="wandb.init(...) before the loop begins"
        )
    return _wandb


def _has_wandb_run() -> bool:
    return getattr(sys.modules.get(WANDB), "run", None) is not None


def _tensorboard(folder: Path, step: int) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if step else None)

    def write(step: int, numbers: Mapping[str, float]) -> None:
        with _received(TENSORBOARD):
            for name, number in numbers.items():
                writer.add_scalar(name, number, step)
            writer.flush()

    return write


def _wandb(step: int, numbers: Mapping[str, float]) -> None:
    with _received(WANDB):
        sys.modules[WANDB].log(dict(numbers), step=step)


@contextlib.contextmanager
def _received(package: str) -> Iterator[None]:
    """Turn whatever a package raises into one error that says whose it is."""
    try:
        yield
    except Exception as error:
        raise Unreceived(
            f"{package} did not take what was logged: {type(error).__name__}: {error}"
        ) from error


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
