"""The run: two lines in a training loop."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Self

from samestep.bundle.storage.opening import open_storage

from .batches import Batches
from .errors import RunError, hinted
from .ranks import LIMIT_SECONDS
from .resuming import Wishes
from .settings import checked
from .starting import Starting
from .tracking import Tracking

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from types import FrameType, TracebackType

    from samestep.bundle.retention import Policy as Retention
    from samestep.contract import Component
    from samestep.data import FollowedData, Replayability

    from .life import Life
    from .lineage import Origin
    from .settings import Asynchronous, SaveWhen
    from .stopping import NoticeSource


class Run:
    """A training that can be interrupted anywhere and goes on with the step that it would have taken.

    ```python
    run = samestep.Run("runs/pilot", model=model, optimizer=optimizer, schedule=schedule, data=loader, steps=10_000)
    for batch in run:
        loss = train_step(batch)
        run.log(loss=loss)
    ```

    The loop restores the newest whole bundle first, goes on with the right sample, saves when that is due, on SIGTERM,
    SIGUSR1 and Ctrl-C, and at the end. A loop with its own control flow calls ``restore``, ``step_done``, ``due``,
    ``save`` and ``close`` instead.

    Args:
        root: folder or URL that the run's bundles lie in.
        model: module, or several by name.
        optimizer: one, or several by name.
        schedule: of the learning rate: one, or several by name.
        scaler: gradient scaler.
        data: loader that the loop takes its batches from.
        ema: averaged model, or anything with ``state_dict`` and ``load_state_dict`` that averages.
        steps: length of the run in optimizer updates.
        epochs: length of the run in passes through the data.
        save: when to save: a number of steps, a text such as ``"10 min"``, ``"auto"``, ``Every(…)`` or ``Auto(…)``.
        keep: how many bundles stay, or a retention policy; None to keep all.
        intent: only ``resume``; see ``new_run`` and ``load_weights`` for the others.
        accumulation: inside an accumulation window a save waits for its ``boundary``, or ``capture`` keeps the
            gradients that were gathered.
        asynchronous: ``stage`` copies the state and writes it in the background; ``overlap`` also copies while the
            next forward and backward run; ``auto`` chooses; False waits until each bundle exists.
        on_save_error: ``raise`` at the next step, or ``continue`` with a warning.
        policy: ``fallback`` goes on from an older bundle when the newest is damaged, ``strict`` refuses to.
        transfer: whether the number of ranks or the kind of device may differ from those of the bundle.
        begin_again: why the run begins afresh where nothing that is there can be used.
        seed: of the sample order; by default the one that the script gave torch.
        data_version: of the data, in your own words; by default a fingerprint of its content.
        replay: what you know of a stream, see ``samestep.data.Replayability``; by default it is found out.
        notices: where notices come from; signals by default.
        log_to: ``tensorboard``, ``wandb`` or functions of a step and its numbers, for ``log``.
        progress: whether the first rank shows lines on stderr.
        limit_seconds: how long ranks wait for each other within a save.
        allow_missing: names of tracked objects that a bundle need not hold; they begin anew.
        allow_extra: names of objects in a bundle that need not be tracked; they are dropped.
        tracked: further objects by name: with ``state_dict`` and ``load_state_dict``, dataclasses of plain values,
            generators, dicts.

    Raises:
        RunError: a setting cannot be used.
    """

    @hinted()
    def __init__(
        self,
        root: str | Path,
        *,
        model: Any = None,
        optimizer: Any = None,
        schedule: Any = None,
        scaler: Any = None,
        data: Any = None,
        ema: Any = None,
        steps: int | None = None,
        epochs: int | None = None,
        save: SaveWhen = None,
        keep: int | Retention | None = 3,
        intent: str = "resume",
        accumulation: str = "boundary",
        asynchronous: Asynchronous = "auto",
        on_save_error: str = "raise",
        policy: str = "fallback",
        transfer: bool = False,
        begin_again: str = "",
        seed: int | None = None,
        data_version: str | None = None,
        replay: Replayability | None = None,
        notices: Sequence[NoticeSource] | None = None,
        log_to: str | Sequence[Any] | None = None,
        progress: bool = True,
        limit_seconds: float = LIMIT_SECONDS,
        allow_missing: Sequence[str] = (),
        allow_extra: Sequence[str] = (),
        **tracked: Any,
    ) -> None:
        self._storage = open_storage(root)
        self._settings = checked(
            steps=steps,
            epochs=epochs,
            save=save,
            keep=keep,
            intent=intent,
            accumulation=accumulation,
            asynchronous=asynchronous,
            on_save_error=on_save_error,
            wishes=Wishes(policy=policy, transfer=transfer, begin_again=begin_again),
            seed=seed,
            data_version=data_version,
            replay=replay,
            notices=notices,
            log_to=log_to,
            progress=progress,
            limit_seconds=limit_seconds,
            allow_missing=tuple(allow_missing),
            allow_extra=tuple(allow_extra),
        )
        self._tracking = Tracking()
        for argument, given in (
            ("model", model),
            ("optimizer", optimizer),
            ("schedule", schedule),
            ("scaler", scaler),
            ("ema", ema),
        ):
            self._tracking.add_argument(argument, given)
        for name, thing in tracked.items():
            self._tracking.add(name, thing)
        self._loader = data
        self._life: Life | None = None
        self._followed: FollowedData | None = None
        self._origin: Origin | None = None

    # -- before the loop -----------------------------------------------------------------------------------------

    @hinted()
    def track(self, name: str, thing: Any, component: Component | None = None) -> Self:
        """Keep ``thing`` in every bundle, as ``name``.

        Args:
            name: unique in the run.
            thing: see the class.
            component: of the training state that it is, where its class does not say.

        Raises:
            RunError: the name is taken, or the run has begun.
        """
        self._tracking.add(name, thing, component)
        return self

    def left_to_framework(self, *things: Any) -> Self:
        """Say that a framework takes care of ``things``, such as the loaders of its evaluations."""
        self._tracking.framework.extend(things)
        return self

    @hinted()
    def rebuilt(self, name: str, *, by: Callable[[], Any], check: Callable[[], Any]) -> Self:
        """Say that a restart makes ``name`` anew.

        Args:
            name: of an object, as the run names it when it asks, or of a component.
            by: makes it; called at every start, when everything tracked is in place.
            check: called after it; raises, or returns False, where what was made is not right.

        Raises:
            RunError: the name is taken, or the run has begun.
        """
        self._tracking.add_rebuilt(name, by, check)
        return self

    @hinted()
    def irrelevant(self, name: str, *, because: str) -> Self:
        """Say that ``name`` does not matter for going on, and why.

        Raises:
            RunError: the name is taken, no reason is given, or the run has begun.
        """
        self._tracking.add_irrelevant(name, because)
        return self

    def begin_from(self, origin: Origin) -> None:
        """Start from the weights of another run; see ``new_run``."""
        self._origin = origin

    # -- the loop ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        """Restore, and yield the batches of the steps that are left."""
        if self._loader is None:
            raise RunError(
                "there is nothing to take batches from",
                hint="Run(..., data=loader), or a loop of your own with run.restore(), run.step_done() and run.save()",
            )
        if self._settings.steps is None and self._settings.epochs is None:
            raise RunError(
                "nothing says how long the run is", hint="Run(..., steps=...) or Run(..., epochs=...)"
            )
        if self._life is None:
            self._start(sys._getframe(1))  # noqa: SLF001 - to tell the user's names from it
        elif self._life.inside:  # a loop was left by break, and another is begun
            self.came_back()
        return Batches(self)

    def batches(self) -> Iterator[Any]:
        """Yield the batches that are left of the epoch that the run is in, for a loop of one's own."""
        life = self._begun()
        if self._followed is None:
            raise RunError("there is nothing to take batches from", hint="Run(..., data=loader)")
        yield from life.batches(self._followed.epoch())

    def restore(self) -> int:
        """Put everything in place that the run goes on from; return how many steps are complete.

        Raises:
            ContractOpen: something alive in the process has no row.
            MethodChanged: the run in the store is not the one that the script would go on with.
            SamestepError: it cannot be restored; the message says why.
        """
        if self._life is None:
            self._start(sys._getframe(1))  # noqa: SLF001 - to tell the user's names from it
        return self.step

    def step_done(self) -> bool:
        """Say, in a loop of one's own, that a training step was made; return whether it finished an update.

        Raises:
            SaveFailed: a save in the background has failed.
        """
        life = self._begun()
        finished = life.passed()
        if finished or self._settings.accumulation == "capture":
            with hinted():
                life.look()
        return finished

    def due(self) -> bool:
        """Whether a save is due, by the policy or by a notice."""
        return self._begun().due

    def save(self, *, wait: bool = False) -> None:
        """Save now, or inside a step at the boundary that comes next.

        After a notice this waits until the bundle exists and ends the process.

        Args:
            wait: return when the bundle exists.

        Raises:
            SaveFailed: this save, or the one before it, has failed.
            SystemExit: a notice had arrived, and the state is saved.
        """
        life = self._begun()
        if life.notice is not None and life.due:
            life.leave(life.notice)
        life.save(wait=wait)

    def wait(self) -> None:
        """Return when the save in flight is a bundle; at once when there is none.

        Raises:
            SaveFailed: it has failed.
        """
        with hinted():
            self._begun().wait()

    def close(self) -> None:
        """End the attempt: save what is not saved yet, and say what the run came to. Closing twice is no error."""
        if self._life is not None and not self._life.ended:
            self._life.settle()
            with hinted():
                self._life.finish("finished" if self.finished else "closed")

    def fail(self, error: BaseException) -> None:
        """End the attempt without another save: what is in flight still becomes a bundle."""
        if self._life is not None:
            self._life.end(type(error).__name__)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.fail(error)

    # -- what it knows -------------------------------------------------------------------------------------------

    @property
    def step(self) -> int:
        """Completed optimizer updates of the run."""
        return self._begun().step

    @property
    def copying(self) -> str:
        """How a save takes the state: ``overlap`` with the next forward and backward, ``stage`` before them."""
        return self._begun().copying

    @property
    def micro_steps(self) -> int:
        """Micro-steps of the accumulation window that is open: 0 at a boundary."""
        return self._begun().micro_steps

    @property
    def epoch(self) -> int:
        """The pass through the data that the run is in, from 0."""
        self._begun()
        return 0 if self._followed is None else int(self._followed.position.epoch)

    @property
    def at_epoch_end(self) -> bool:
        """Whether the batch that was given last is known to be the last one of its epoch."""
        followed = self._followed
        return followed is not None and followed.position.batches == followed.batches_per_epoch

    @property
    def finished(self) -> bool:
        """Whether the run has all its steps or epochs."""
        steps, epochs = self._settings.steps, self._settings.epochs
        return (steps is not None and self.step >= steps) or (epochs is not None and self.epoch >= epochs)

    @hinted()
    def log(self, **numbers: Any) -> None:
        """Keep numbers of the step that is going on: a JSON line, and whatever ``log_to`` names.

        Raises:
            RunError: a value is no number.
        """
        self._begun().log(numbers)

    # -- inside --------------------------------------------------------------------------------------------------

    def _start(self, frame: FrameType | None) -> None:
        starting = Starting(self._storage, self._settings, self._tracking, self._loader, self._origin)
        with hinted():
            started = starting.start(frame)
        self._life, self._followed = started.life, started.data
        _call_at_exit(_at_exit, weakref.ref(started.life), os.getpid())

    def _begun(self) -> Life:
        if self._life is None:
            with hinted():
                raise RunError("the run has not begun", hint="call run.restore() first, or loop over the run")
        return self._life

    def came_back(self) -> None:
        """A batch was used: see whether that finished a step, and do what is due then."""
        life = self._begun()
        told = not life.inside  # by step_done, in the loop's body
        if not told:
            life.passed()
        if life.micro_steps and self._settings.accumulation == "boundary":
            return
        with hinted():
            if not told:
                life.look()
            if life.notice is not None and not self.finished:
                life.leave(life.notice)
            if life.due and not self.finished:
                life.save(wait=False)


def _call_at_exit(function: Callable[..., None], *arguments: Any) -> None:
    """Call ``function`` when the process ends, while threads can still be given work: ``atexit`` is later than that."""
    getattr(threading, "_register_atexit", atexit.register)(function, *arguments)


def _at_exit(life: weakref.ref[Life], process: int) -> None:
    """Let a save that is in flight become a bundle when the process ends without having closed the run."""
    left = life()
    if left is not None and os.getpid() == process:  # a forked child has not left anything
        left.leave_behind()
