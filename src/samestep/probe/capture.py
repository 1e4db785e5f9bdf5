"""Captures the state that a step starts from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..trace import Average, Quantity, State
from . import averages, reach
from .content import Named, has_nonzero, quantity
from .generators import global_generators
from .instances import Instances
from .models import Models
from .optimizers import OptimizerShot, hyper_parameters, scaler_state, schedule, shoot

if TYPE_CHECKING:
    from types import FrameType

    from ..trace import Orders


@dataclass
class Shot:
    """A captured state whose optimizers have no index yet.

    Attributes:
        state: all but the optimizers and schedulers.
        optimizers: every live optimizer.
        schedules: identity of the optimizer (None when unknown) and counters.
    """

    state: State = field(default_factory=State)
    optimizers: list[OptimizerShot] = field(default_factory=list)
    schedules: list[tuple[int | None, dict[str, Any]]] = field(default_factory=list)


class Capture:
    """Looks at everything that the process trains.

    Attributes:
        optimizers, schedulers, scalers: instances found so far.
        models: the trained modules.
    """

    def __init__(self, orders: Orders) -> None:
        self.optimizers = Instances()
        self.schedulers = Instances()
        self.scalers = Instances()
        self.models = Models()
        self._samples = orders.sample_values
        self._every = max(1, orders.full_digest_every)
        self._indices: dict[int, int] = {}
        self._used: set[int] = set()

    def shot(self, step: int, frame: FrameType | None) -> Shot:
        """Capture everything, before step number ``step``."""
        full = self.is_full(step)
        alive = self.optimizers.alive()
        parameters = self.models.parameters(alive)
        names = {id(parameter): name for name, parameter in parameters}
        buffers = self.models.buffers(alive)
        state = State(
            weights=self._quantity(parameters, full),
            buffers=self._quantity(buffers, full),
            caches=self._quantity(self.models.caches(alive), full),
            scalers=[scaler_state(scaler) for scaler in self.scalers.alive() if scaler.is_enabled()],
            averages=self._averages(alive, frame, full),
            rng=global_generators(),
        )
        shots = [shoot(optimizer, names, self._samples, full=full) for optimizer in alive]
        schedules = [(_optimizer_of(item), schedule(item)) for item in self.schedulers.alive()]
        return Shot(state, shots, schedules)

    def is_full(self, step: int) -> bool:
        """Return whether contents are digested whole at this step."""
        return (step - 1) % self._every == 0

    def weights(self, step: int) -> Quantity | None:
        """Capture the parameters alone."""
        return self._quantity(self.models.parameters(self.optimizers.alive()), self.is_full(step))

    def gradients(self, step: int) -> Quantity | None:
        """Capture the gradients that are there; None when all are absent or zero."""
        parameters = self.models.parameters(self.optimizers.alive())
        present = [(name, p.grad) for name, p in parameters if p.grad is not None]
        if not any(has_nonzero(gradient) for _, gradient in present):
            return None
        return quantity(present, self._samples, full=self.is_full(step))

    def groups(self, optimizer: Any) -> list[dict[str, Any]]:
        """Return the hyper-parameters of one optimizer."""
        return hyper_parameters(optimizer)

    def used(self, optimizer: int) -> int:
        """Note that an optimizer (by identity) took part in a step, and return its index."""
        self._used.add(optimizer)
        return self._indices.setdefault(optimizer, len(self._indices))

    def settle(self, used: list[int]) -> None:
        """Give indices, in order of creation, to the optimizers of the models; ``used`` were called in this step.

        An optimizer that was never called and whose parameters a younger one holds too was replaced by that.
        """
        self._used.update(used)
        alive = self.optimizers.alive()
        for position, optimizer in enumerate(alive):
            if id(optimizer) in self._used or not _is_replaced(optimizer, alive[position + 1 :]):
                self._indices.setdefault(id(optimizer), len(self._indices))

    def state(self, shot: Shot) -> State:
        """Return the state with its optimizers under their indices."""
        state = shot.state
        by_index = sorted(
            (self._indices[item.optimizer], item)
            for item in shot.optimizers
            if item.optimizer in self._indices
        )
        state.groups = [[] for _ in range(by_index[-1][0] + 1)] if by_index else []
        for index, item in by_index:
            state.groups[index] = item.groups
            state.optimizer.update({f"{index}/{kind}": content for kind, content in item.kinds.items()})
        state.schedules = [
            counters for owner, counters in shot.schedules if owner is None or owner in self._indices
        ]
        return state

    def _averages(self, alive: list[Any], frame: FrameType | None, full: bool) -> list[Average]:
        names = reach.local_names(frame) if frame is not None else []
        found = averages.find(self.models.roots(alive), alive, names)
        return [
            Average(name, quantity(list(tensors.items()), self._samples, full=full), updates)
            for name, tensors, updates in found
        ]

    def _quantity(self, named: Named, full: bool) -> Quantity | None:
        return quantity(named, self._samples, full=full) if named else None


def _is_replaced(optimizer: Any, younger: list[Any]) -> bool:
    first = next((p for group in optimizer.param_groups for p in group["params"]), None)
    held = {id(p) for other in younger for group in other.param_groups for p in group["params"]}
    return first is None or id(first) in held


def _optimizer_of(scheduler: Any) -> int | None:
    optimizer = getattr(scheduler, "optimizer", None)
    if optimizer is None:
        inner = getattr(scheduler, "_schedulers", None) or [None]
        optimizer = getattr(inner[0], "optimizer", None)
    while optimizer is not None and not hasattr(optimizer, "param_groups"):
        optimizer = getattr(optimizer, "optimizer", None)
    return None if optimizer is None else id(optimizer)
