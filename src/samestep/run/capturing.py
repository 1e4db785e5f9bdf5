"""The state of a run as a whole: every tracked object, the generators, the data, the open window; in one order."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from samestep.contract import Component
from samestep.state import Capture, restore
from samestep.state.buffers import TrackedBuffers
from samestep.state.generators import TrackedRng
from samestep.state.stateful import TrackedStateful
from samestep.state.tracking import track

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.storage.base import Storage
    from samestep.data import FollowedData
    from samestep.state import Snapshot
    from samestep.state.ranks import Ranks
    from samestep.state.tracked import Tracked

    from .gradients import OpenWindow
    from .tracking import Tracking

DATA, ACCUMULATION, RNG = "data", "accumulation", "rng"
_BUFFERS = "{model}.buffers"
"""Under which name a model's buffers are kept that its state dict leaves out."""


class Capturing:
    """Takes and restores the state of a run.

    Args:
        tracking: the objects that the user has named.
        data: that is followed; None when the script gives its batches itself.
        window: the open accumulation window.
        ranks: that train together.

    Attributes:
        components: of the training state that something of this belongs to.
    """

    def __init__(
        self, tracking: Tracking, data: FollowedData | None, window: OpenWindow, ranks: Ranks
    ) -> None:
        self._ranks = ranks
        self._sources = _sources(tracking, data, window)
        self._capture = Capture(self._sources, ranks)
        self.components = {source.component for source in self._sources}

    def take(self, *, overlap: bool) -> Snapshot:
        """Return a copy of the state as it is now; see ``Capture.take``."""
        return self._capture.take(overlap=overlap)

    def marks(self) -> list[tuple[int, int]]:
        """Return what tells whether parameters have changed; see ``Capture.marks``."""
        return self._capture.marks()

    def prepare(self) -> None:
        """Make ready for the first ``take``; see ``Capture.prepare``. Every rank must call."""
        self._capture.prepare(wait=False)

    def restore(
        self,
        bundle: Bundle,
        storage: Storage,
        *,
        allow_missing: Sequence[str] = (),
        allow_extra: Sequence[str] = (),
    ) -> None:
        """Put the state of ``bundle`` in place, whole or not at all; the generators last.

        Raises:
            StateError: it does not fit.
            DamageError: it is not what was written.
        """
        restore(
            self._sources,
            bundle,
            storage,
            allow_missing=allow_missing,
            allow_extra=allow_extra,
            ranks=self._ranks,
        )


def _sources(tracking: Tracking, data: FollowedData | None, window: OpenWindow) -> list[Tracked]:
    models = tracking.of(Component.WEIGHTS)
    sources = [
        track(name, thing, Component(component), models=models) for name, component, thing in tracking.items()
    ]
    sources += _buffers(tracking)
    if data is not None:
        sources.append(_Data(data))
    sources.append(_PerRank(ACCUMULATION, window, Component.ACCUMULATION))
    if RNG not in tracking.excused:
        sources.append(TrackedRng(RNG))
    return sources


def _buffers(tracking: Tracking) -> list[Tracked]:
    modules = {name: thing for name, _, thing in tracking.items() if isinstance(thing, torch.nn.Module)}
    found = [TrackedBuffers(_BUFFERS.format(model=name), module) for name, module in modules.items()]
    return [buffers for buffers in found if buffers.names]


class _PerRank(TrackedStateful):
    """State that ranks may have different."""

    per_rank = True


class _Data(TrackedStateful):
    """Where the run stands in its data."""

    def __init__(self, followed: FollowedData) -> None:
        super().__init__(DATA, followed, Component.DATA_POSITION, read_back=False)
        self.per_rank = followed.per_rank
