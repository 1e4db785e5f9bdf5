"""Lightning: a run that keeps a fit, by one callback and one wrapped loader.

```python
bundles = samestep.integrations.lightning.Bundles("s3://bucket/run", save=500)
trainer = Trainer(..., callbacks=[bundles])
trainer.fit(module, bundles.loader(loader))
```

**It captures the state itself**, by `samestep.Run`; no ``ckpt_path`` is given, and no ``ModelCheckpoint`` is needed. A
callback is asked (``on_fit_start``) when model, optimizers and schedules are there and nothing of the loop is set yet,
which is where Lightning itself would read its file. That file is not sealed, because of what it leaves out or gets
wrong: no random generator is in it, an ordinary loader starts its epoch again, a save at the last batch of an epoch
counts the epoch as open, and it is a pickle. A ``CheckpointIO`` would be given that very dictionary.

A save that is due after a step is made right before the next begins: by then validation, the end of the epoch and the
other callbacks are done with that step. A restart stands at the same place, with the same generators and counters.

Beside what `samestep.Run` tracks, a bundle has the progress of the loops, the state of every callback, of the
data module, and what hooks named ``on_save_checkpoint`` add. What Lightning averages over an epoch for logging
(``self.log(..., on_epoch=True)``) is in none of them: the number of an interrupted epoch is that of its rest.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from lightning.pytorch import Callback
from torch.optim.swa_utils import AveragedModel

from samestep.contract import Component
from samestep.run import Run
from samestep.run.errors import MethodChanged, RunError, hinted
from samestep.run.settings import with_ranks_fixed
from samestep.run.stopping import Signals
from samestep.state import TrackedRng

from .fit_loader import Loader, Position
from .loaders import living_loaders, require_batches_of_own

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lightning.pytorch import LightningModule, Trainer

    from samestep.data import Replayability
    from samestep.run.stopping import Notice, NoticeSource

_UNSUPPORTED = frozenset({"DeepSpeedStrategy", "FSDPStrategy", "XLAStrategy"})
_RANKS_FIXED = "Lightning counts the batches of an epoch, which are others for another number of ranks"
_PLAN = ("max_epochs", "max_steps", "accumulate_grad_batches", "gradient_clip_val")


class Bundles(Callback):  # type: ignore[misc]
    """Keeps the bundles of a fit, and goes on from the newest whole one.

    Args:
        root: folder or URL that the run's bundles lie in.
        save: when to save, see ``samestep.Run``.
        seed: of the sample order; by default the one that torch was given.
        data_version: of the data, in your own words; by default a fingerprint of its content.
        replay: what you know of a stream, see ``samestep.data.Replayability``.
        notices: where notices come from; signals by default.
        arguments: of ``samestep.Run``; further objects can be tracked by name. ``transfer`` allows another kind of
            device; the number of ranks stays.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        save: Any = None,
        seed: int | None = None,
        data_version: str | None = None,
        replay: Replayability | None = None,
        notices: Sequence[NoticeSource] | None = None,
        **arguments: Any,
    ) -> None:
        self._root = root
        self._arguments = {"save": save, **arguments}
        self._data = (seed, data_version, replay)
        self._notices = [_Later(source) for source in ([Signals()] if notices is None else notices)]
        self._loader: Loader | None = None
        self._run: Run | None = None
        self._fit: _Fit | None = None
        self._used = 0

    def loader(self, loader: Any) -> Loader:
        """Return ``loader`` as the training is to be given it: in ``fit``, or from ``train_dataloader``."""
        if self._loader is None:  # Lightning may call train_dataloader more than once
            self._loader = Loader(loader, *self._data)
        return self._loader

    # -- what Lightning calls ------------------------------------------------------------------------------------

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put everything in place that the fit goes on from.

        Raises:
            SamestepError: it cannot be resumed; the message says why.
        """
        with hinted():
            _check(trainer.strategy)
            loader = self._required_loader(trainer)
        self._fit = _Fit(trainer, pl_module, self)
        run = Run(self._root, notices=self._notices, **self._objects(trainer, pl_module), **self._arguments)
        run.track("data", Position(loader, lambda: loader.given - self._used), Component.DATA_POSITION)
        run.track("lightning", self._fit, Component.PROGRESS)
        run.left_to_framework(*living_loaders())
        run._settings = with_ranks_fixed(run._settings, _RANKS_FIXED)
        run.restore()
        self._run = run
        self._fit.rng = TrackedRng().read()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Listen to notices; Lightning's own handlers are set by now, and would end the fit before it is saved."""
        for source in self._notices:
            source.begin()

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Save what is due, or after a restart put back what its way here has changed."""
        run, fit = self._begun
        if fit.rng is not None:
            fit.arrived()
        elif run.due():
            run.save()
        self._used += 1

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """See whether a step was finished."""
        self._begun[0].step_done()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save what is not saved yet."""
        self._begun[0].close()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the attempt also where nothing was left to train."""
        self._begun[0].close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End the attempt without another save."""
        if self._run is not None:
            self._run.fail(exception)

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def _begun(self) -> tuple[Run, _Fit]:
        if self._run is None or self._fit is None:
            raise RunError("the fit has not begun", hint="Trainer(callbacks=[bundles]) and trainer.fit(...)")
        return self._run, self._fit

    def _required_loader(self, trainer: Trainer) -> Loader:
        source = trainer.fit_loop._data_source  # the loader, or what makes it
        given = source.dataloader() if hasattr(source.instance, "train_dataloader") else source.instance
        if not isinstance(given, Loader):
            raise RunError(
                "the fit takes its batches from a loader that cannot be put back to a position",
                hint="trainer.fit(module, bundles.loader(loader)), or return bundles.loader(loader) from "
                "train_dataloader",
            )
        if given.followed.per_rank and trainer.world_size > 1:
            raise RunError(
                "every rank stands at a place of its own in this data, which this adapter does not keep apart",
                hint="train on map-style data, or on one rank",
            )
        return given

    def _objects(self, trainer: Trainer, module: LightningModule) -> dict[str, Any]:
        averages = [
            thing
            for callback in trainer.callbacks
            for thing in vars(callback).values()
            if isinstance(thing, AveragedModel)
        ]
        schedules = [config.scheduler for config in trainer.lr_scheduler_configs]
        return {
            "model": module,
            "optimizer": _named("optimizer", trainer.optimizers),
            "schedule": _named("schedule", schedules),
            "ema": _named("ema", averages),
            "scaler": getattr(trainer.precision_plugin, "scaler", None),
        }


def _check(strategy: Any) -> None:
    """Refuse strategies whose state could be kept only by half."""
    names = {kind.__name__ for kind in type(strategy).__mro__}
    if names & _UNSUPPORTED:
        raise RunError(
            f"{type(strategy).__name__} keeps its state where this adapter does not reach",
            hint="shard with ModelParallelStrategy (FSDP2); or let a ModelCheckpoint save, and seal its folder: "
            "samestep bundle seal FOLDER --run ROOT --watch",
        )
    together = getattr(strategy, "_tensor_parallel_size", 1)
    require_batches_of_own(together if isinstance(together, int) else 1)


class _Later:
    """A source of notices that begins to listen when it is told to."""

    def __init__(self, source: NoticeSource) -> None:
        self._source = source
        self._arrived: Callable[[Notice], None] | None = None
        self._listens = False

    def start(self, arrived: Callable[[Notice], None]) -> None:
        """See ``NoticeSource``."""
        self._arrived = arrived

    def begin(self) -> None:
        """Listen."""
        if self._arrived is not None and not self._listens:
            self._source.start(self._arrived)
            self._listens = True

    def stop(self) -> None:
        """See ``NoticeSource``."""
        if self._listens:
            self._source.stop()
            self._listens = False


class _Fit:
    """What Lightning keeps of a fit beside model, optimizers, schedules and data.

    Attributes:
        rng: the generators as a restart is to find them when its first step begins; None from then on.
    """

    def __init__(self, trainer: Trainer, module: LightningModule, bundles: Bundles) -> None:
        self._trainer, self._module, self._bundles = trainer, module, bundles
        self._saved: dict[str, Any] | None = None
        self.rng: Any = None

    def state_dict(self) -> dict[str, Any]:
        """Return it as plain values and tensors."""
        return {
            "plan": self._plan,
            "loops": _loops(self._trainer),
            "stopped": self._trainer.should_stop,
            "callbacks": {callback.state_key: callback.state_dict() for callback in self._callbacks},
            "datamodule": self._datamodule.state_dict() if self._datamodule is not None else {},
            "hooks": self._from_hooks(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put it back, as far as that can be done before the loops run.

        Raises:
            MethodChanged: the fit would not go on as it was planned.
        """
        before = state["plan"]
        changed = [
            f"{name} was {before[name]} and is {now}"
            for name, now in self._plan.items()
            if before[name] != now
        ]
        if changed:
            raise MethodChanged(
                f"this is not the fit that was interrupted: {'; '.join(changed)}",
                hint="put back what was changed, or begin another run from its weights: samestep.new_run(...)",
            )
        self._saved = state["loops"]
        self._trainer.fit_loop.load_state_dict(copy.deepcopy(state["loops"]))
        self._trainer.should_stop = state["stopped"]
        for callback in self._callbacks:
            if (kept := state["callbacks"].get(callback.state_key)) is not None:
                callback.load_state_dict(copy.deepcopy(kept))
        if self._datamodule is not None:
            self._datamodule.load_state_dict(state["datamodule"])
        self._to_hooks(state["hooks"])

    def arrived(self) -> None:
        """The first step begins: counters and generators are again what they were when this was saved."""
        rng, self.rng = self.rng, None
        if self._saved is not None:
            loop = self._trainer.fit_loop
            is_last = loop.epoch_loop.batch_progress.is_last_batch
            loop.load_state_dict(copy.deepcopy(self._saved))
            loop.epoch_loop.batch_progress.is_last_batch = is_last
            loop.restarting = False
            self._saved = None
            TrackedRng().write(rng)

    @property
    def _plan(self) -> dict[str, Any]:
        return {name: getattr(self._trainer, name) for name in _PLAN}

    @property
    def _callbacks(self) -> list[Any]:
        return [callback for callback in self._trainer.callbacks if callback is not self._bundles]

    @property
    def _datamodule(self) -> Any:
        return self._trainer.datamodule

    def _from_hooks(self) -> dict[str, Any]:
        checkpoint = self._progress
        for callback in self._callbacks:
            callback.on_save_checkpoint(self._trainer, self._module, checkpoint)
        self._module.on_save_checkpoint(checkpoint)
        return {name: value for name, value in checkpoint.items() if name not in self._progress}

    def _to_hooks(self, added: Mapping[str, Any]) -> None:
        checkpoint = {**self._progress, **added}
        for callback in self._callbacks:
            callback.on_load_checkpoint(self._trainer, self._module, checkpoint)
        self._module.on_load_checkpoint(checkpoint)

    @property
    def _progress(self) -> dict[str, Any]:
        return {"epoch": self._trainer.current_epoch, "global_step": self._trainer.global_step}


def _loops(trainer: Trainer) -> dict[str, Any]:
    """Return the progress of the loops, without the loader's place in it.

    Whether a batch is the last one is known again when it is fetched; until then a restart must not take its epoch
    for finished.
    """
    state: dict[str, Any] = copy.deepcopy(trainer.fit_loop.state_dict())
    state.get("state_dict", {}).pop("combined_loader", None)
    state["epoch_loop.batch_progress"]["is_last_batch"] = False
    return state


def _named(word: str, things: Sequence[Any]) -> dict[str, Any]:
    return {f"{word}-{number}" if number else word: thing for number, thing in enumerate(things)}
