"""Where training stands in its data, and how that is written down."""

from __future__ import annotations

from typing import Any

import msgspec

DATA_SCHEMA = "samestep.data/1"


class Position(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What training has used; what was only fetched ahead does not count.

    Attributes:
        epoch: the epoch it is in, from 0. After the last batch of an epoch it is still in that epoch, until
            the loop asks for more: what a script does at the end of an epoch has not been done yet.
        batches: batches of this epoch that the loop of one rank was given.
        samples: places of this epoch's order that all ranks together have gone through.
        total: the same over all epochs.
    """

    epoch: int = 0
    batches: int = 0
    samples: int = 0
    total: int = 0

    def further(self, samples: int) -> Position:
        """Return the position one batch later, which was ``samples`` long over all ranks."""
        return Position(
            epoch=self.epoch,
            batches=self.batches + 1,
            samples=self.samples + samples,
            total=self.total + samples,
        )

    def next_epoch(self) -> Position:
        """Return the start of the next epoch."""
        return Position(epoch=self.epoch + 1, total=self.total)


class SavedData(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The state of followed data.

    Attributes:
        way: how the data was followed.
        fixed: what must not have changed for the position to mean anything.
        free: what may have changed; the resume says that it did.
        last_batch: digest of the batch used last, where a replay is checked by it.
        nested: the loader's own state, as the loader gave it.
    """

    schema: str = DATA_SCHEMA
    way: str
    position: Position
    fixed: dict[str, Any]
    free: dict[str, Any]
    last_batch: str | None = None
    nested: Any = None
