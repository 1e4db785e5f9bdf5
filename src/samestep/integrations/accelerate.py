"""Accelerate: a run that keeps everything an Accelerator has prepared.

```python
model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
run = samestep.integrations.accelerate.run(accelerator, "runs/pilot", data=loader, epochs=3)
for batch in run:
    ...
```

**It captures the state itself**, by `samestep.Run`, and does not call ``save_state``: the loop is the script's own, so
nothing has to be handed back to a framework, and a folder of ``save_state`` has neither step nor epoch nor position,
pickles, and is filled in place. What the Accelerator has prepared or registered is tracked: models, optimizers,
schedules, the scaler, what ``register_for_checkpointing`` was told, and the place in the accumulation window.

The data is followed from the loader as it was before ``prepare``; batches come on the Accelerator's device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from accelerate.utils import DistributedType, send_to_device

from samestep.contract import Component
from samestep.run import Run
from samestep.run.errors import RunError

from .loaders import living_loaders, plain, require_batches_of_own

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from accelerate import Accelerator

_UNSUPPORTED = (DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM)
_UNSHARDED_REMAINDER = -1


class AcceleratedRun(Run):
    """A run whose batches come as from a prepared loader; made by ``run``."""

    accelerator: Accelerator

    def batches(self) -> Iterator[Any]:
        """Yield the batches that are left of the epoch, on the Accelerator's device; the last one is known as such."""
        place = _Place()
        gradients = self.accelerator.gradient_state
        gradients._add_dataloader(place)  # what every loader of accelerate does
        try:
            for batch in super().batches():
                place.end_of_dataloader = self.at_epoch_end
                yield send_to_device(batch, self.accelerator.device)
        finally:
            gradients._remove_dataloader(place)


class _Place:
    """What accelerate asks the loader that is being iterated."""

    def __init__(self) -> None:
        self.end_of_dataloader = False
        self.remainder = _UNSHARDED_REMAINDER


class _Window:
    """Where the Accelerator is in its accumulation window."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator

    def state_dict(self) -> dict[str, Any]:
        """Return its count of micro-steps."""
        return {"step": self._accelerator.step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set it."""
        self._accelerator.step = state["step"]


def run(accelerator: Accelerator, root: str | Path, *, data: Any = None, **arguments: Any) -> AcceleratedRun:
    """Return a run that keeps what ``accelerator`` knows. Call it when everything is prepared.

    Args:
        accelerator: whose objects are kept.
        root: folder or URL that the run's bundles lie in.
        data: the training loader, best as it was before ``prepare``; by default the only one that was prepared.
            All other loaders are taken for loaders of evaluations, which start from their beginning each time.
        arguments: of ``samestep.Run``; objects that the Accelerator does not know can be tracked by name.

    Raises:
        RunError: something cannot be kept, or it is not clear which loader is the training's.
    """
    _check(accelerator)
    given = {**_objects(accelerator), **arguments}
    made = AcceleratedRun(root, data=plain(_chosen(accelerator, data)), **given)
    made.accelerator = accelerator
    for number, thing in enumerate(accelerator._custom_objects):  # it has no public list
        made.track(_name("registered", number), thing)
    made.track("accelerator", _Window(accelerator), Component.PROGRESS)
    return made.left_to_framework(*living_loaders())


def _check(accelerator: Accelerator) -> None:
    """Refuse what could be kept only by half."""
    kind = accelerator.distributed_type
    if kind in _UNSUPPORTED:
        raise RunError(
            f"{kind.value} keeps its state where this adapter does not reach",
            hint="let it save, and seal its folder: samestep bundle seal FOLDER --run ROOT --watch",
        )
    if kind is DistributedType.FSDP and not accelerator.is_fsdp2:
        raise RunError(
            "FullyShardedDataParallel flattens the parameters, so that nothing can be kept by its name",
            hint="FullyShardedDataParallelPlugin(fsdp_version=2)",
        )
    layout = accelerator.parallelism_config
    require_batches_of_own(1 if layout is None else layout.non_data_parallel_size)


def _objects(accelerator: Accelerator) -> dict[str, Any]:
    models = [accelerator.unwrap_model(model) for model in accelerator._models]
    optimizers = [prepared.optimizer for prepared in accelerator._optimizers]
    schedules = [prepared.scheduler for prepared in accelerator._schedulers]
    if not models:
        raise RunError(
            "the Accelerator has prepared no model", hint="call accelerator.prepare(model, ...) before this"
        )
    return {
        "model": _named("model", models),
        "optimizer": _named("optimizer", optimizers),
        "schedule": _named("schedule", schedules),
        "scaler": accelerator.scaler,
    }


def _chosen(accelerator: Accelerator, data: Any) -> Any:
    if data is not None:
        return data
    prepared = accelerator._dataloaders
    if len(prepared) != 1:
        raise RunError(
            f"{len(prepared)} loaders are prepared, and nothing says which one gives the training's batches",
            hint="run(accelerator, root, data=loader)",
        )
    return prepared[0]


def _named(word: str, things: Sequence[Any]) -> dict[str, Any]:
    return {_name(word, number): thing for number, thing in enumerate(things)}


def _name(word: str, number: int) -> str:
    return f"{word}-{number}" if number else word
