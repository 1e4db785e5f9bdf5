"""What is recorded of a step while it is open."""

from __future__ import annotations

import hashlib
from typing import Any

from ..trace import Quantity, StepRecord, Update
from .capture import Capture, Shot
from .leaves import undisturbed
from .optimizers import hyper_parameters

UNSEEN = "(unknown)"
"""Name given to an optimizer that changed the weights without a call that could be seen."""


class OpenStep:
    """A step record in the making.

    Attributes:
        record: completed when the step ends.
        shot: the state it began from.
        weights: content of the weights it began with, also when nothing else is watched.
        gradients_seen: gradients left from before were looked at.
        updates: identities of the optimizers called, with their calls.
    """

    def __init__(self, record: StepRecord) -> None:
        self.record = record
        self.shot = Shot()
        self.weights: Quantity | None = None
        self.gradients_seen = False
        self.updates: list[tuple[int, Update]] = []

    def add_inputs(self, digests: list[str], samples: list[Any] | None) -> None:
        """Add what went into a forward of the current micro-step."""
        micro = self.record.micro_steps[-1]
        micro.forwards += 1
        micro.inputs = hashlib.blake2b(
            "|".join([micro.inputs, *digests]).encode(), digest_size=16
        ).hexdigest()
        if micro.samples is None:
            micro.samples = samples

    def add_update(self, optimizer: Any, *, applied: bool) -> None:
        """Add an optimizer call."""
        update = Update(0, type(optimizer).__name__, applied, hyper_parameters(optimizer))
        self.updates.append((id(optimizer), update))
        self.record.weights_after = None

    def add_unseen_update(self) -> None:
        """Add an update that nothing but the weights tells of."""
        self.updates.append((0, Update(-1, UNSEEN)))

    def add_durable(self, paths: list[str]) -> None:
        """Add files that were written or removed."""
        self.record.durable = sorted({*self.record.durable, *paths})

    def saw_no_forward(self) -> bool:
        """Return whether there were backwards only."""
        return bool(self.record.micro_steps) and not any(micro.forwards for micro in self.record.micro_steps)

    def complete(self, capture: Capture) -> None:
        """Put the optimizers under their indices, which may have become known in this very step."""
        capture.settle([optimizer for optimizer, update in self.updates if update.name != UNSEEN])
        for optimizer, update in self.updates:
            update.optimizer = -1 if update.name == UNSEEN else capture.used(optimizer)
            self.record.updates.append(update)
        self.record.before = capture.state(self.shot)


def loss_of(tensors: Any) -> float | None:
    """Return the number that a backward starts from, None when it starts from several."""
    first = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if getattr(first, "numel", lambda: 0)() != 1:
        return None
    with undisturbed():
        return float(first.detach())
