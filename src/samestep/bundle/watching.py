"""Watching a folder that a framework saves into: every new checkpoint is sealed once it is finished."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from samestep.bundle.bundles import Bundle
from samestep.bundle.digests import digest_file
from samestep.bundle.errors import CommitRefused, FencedError, StoreError
from samestep.bundle.folders import FileState, look_at_unit, states_of
from samestep.bundle.sealing import Statements, seal
from samestep.checkpoints import find_units
from samestep.errors import SamestepError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from samestep.bundle.attempts import Attempt
    from samestep.bundle.carrying import Carrier
    from samestep.bundle.folders import Checkpoint
    from samestep.checkpoints import Unit


@dataclasses.dataclass(frozen=True)
class Seen:
    """What became of a checkpoint that the watcher met.

    Attributes:
        path: of the checkpoint, below the watched folder.
        bundle: that it became; None if it was not sealed.
        problem: why not.
    """

    path: str
    bundle: Bundle | None
    problem: SamestepError | None = None


class Watcher:
    """Seals the checkpoints that appear below a folder.

    A checkpoint counts as finished when nothing about it has changed for ``settle_seconds`` and it is whole. One
    that cannot be sealed is looked at again when it changes.

    Args:
        folder: that the training saves into; it may not exist yet.
        attempt: that seals.
        statements: what the files cannot say; the same for every checkpoint.
        already: bundles of the run; what they were sealed from is not sealed again.
        settle_seconds: how long a checkpoint has to rest.
        carrier: of the attempt's journal.
    """

    def __init__(
        self,
        folder: Path,
        attempt: Attempt,
        statements: Statements | None = None,
        *,
        already: Iterable[Bundle] = (),
        settle_seconds: float = 2.0,
        carrier: Carrier | None = None,
    ) -> None:
        self._folder = folder
        self._attempt = attempt
        self._statements = statements or Statements()
        self._settle_seconds = settle_seconds
        self._already = list(already)
        self._carrier = carrier
        self._resting: dict[str, tuple[Mapping[str, FileState], float]] = {}
        self._done: dict[str, Mapping[str, FileState]] = {}
        self._told: dict[str, str] = {}

    def watch(
        self, tell: Callable[[Seen], None], *, interval: float = 1.0, stop: threading.Event | None = None
    ) -> None:
        """Look again and again until ``stop`` is set, and a last time then.

        Raises:
            FencedError: a newer attempt has registered.
        """
        stop = stop or threading.Event()
        while not stop.wait(interval):
            for seen in self.look():
                tell(seen)
        for seen in self.look(at_once=True):
            tell(seen)

    def look(self, *, at_once: bool = False) -> Iterator[Seen]:
        """Look once, seal what is finished, lowest step first, and say what became of it.

        Args:
            at_once: wait for nothing to rest: the training has ended.

        Raises:
            FencedError: a newer attempt has registered: nothing can be sealed any more.
        """
        for unit in find_units(self._folder) if self._folder.is_dir() else ():
            try:
                if self._is_due(unit, at_once=at_once):
                    yield from self._seal(unit)
            except FencedError:
                raise
            except SamestepError as error:
                yield from self._problem(unit.path, error)

    def _is_due(self, unit: Unit, *, at_once: bool) -> bool:
        """Tell whether a checkpoint has to be looked into: it is new or changed, and rests."""
        states = states_of(self._folder, unit)
        if self._done.get(unit.path) == states:
            return False
        before, since = self._resting.get(unit.path, ({}, 0.0))
        if before != states:
            since = time.monotonic()
            self._resting[unit.path] = (states, since)
        return at_once or time.monotonic() - since >= self._settle_seconds

    def _seal(self, unit: Unit) -> Iterator[Seen]:
        states = self._resting.pop(unit.path)[0]
        try:
            checkpoint = look_at_unit(self._folder, unit)
            newest = self._attempt.newest
            known = [*self._already, Bundle(newest)] if newest else self._already
            passed = newest is not None and checkpoint.step < newest.bundle.step
            if not passed and not any(is_sealed_as(checkpoint, bundle) for bundle in known):
                bundle = seal(self._attempt, checkpoint, self._statements, carrier=self._carrier)
                self._already.append(bundle)
                yield Seen(unit.path, bundle)
        except SamestepError as error:
            if isinstance(error, StoreError) and not isinstance(error, CommitRefused):
                raise  # the place failed, not the checkpoint: it is tried again
            yield from self._problem(unit.path, error)
        self._done[unit.path] = states

    def _problem(self, path: str, error: SamestepError) -> Iterator[Seen]:
        """Say what keeps a checkpoint from being sealed, once."""
        if self._told.get(path) != error.message:
            self._told[path] = error.message
            yield Seen(path, None, error)


def is_sealed_as(checkpoint: Checkpoint, bundle: Bundle) -> bool:
    """Tell whether a bundle was made from this very checkpoint.

    Files of the same names and sizes that were not written to since the bundle was made are the same; otherwise
    their digests tell.
    """
    parts = {part.path: part for part in bundle.manifest.parts}
    if bundle.step != checkpoint.step or Counter(part.size for part in parts.values()) != Counter(
        state.size for state in checkpoint.files.values()
    ):
        return False
    made = datetime.fromisoformat(bundle.manifest.created).timestamp()
    if parts.keys() == checkpoint.files.keys() and checkpoint.written < made:
        return True
    digests = Counter(digest_file(checkpoint.root / name).digest for name in checkpoint.files)
    return digests == Counter(part.digest for part in parts.values())
