"""Watching a folder that a framework saves into: every new checkpoint is sealed once it is finished."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from samestep.bundle.bundles import Bundle
from samestep.bundle.contracts import rank_of
from samestep.bundle.digests import digest_file
from samestep.bundle.errors import CommitRefused, FencedError, NoRoom, StoreError
from samestep.bundle.folders import FileState, look_at_unit, states_of
from samestep.bundle.records import CommitRecord
from samestep.bundle.sealing import Statements, seal
from samestep.checkpoints import UNKNOWN, find_units, inspect_unit
from samestep.checkpoints.recognise import DEEPSPEED, TORCH_DCP
from samestep.errors import CheckpointError, SamestepError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from samestep.bundle.attempts import Attempt
    from samestep.bundle.carrying import Carrier
    from samestep.bundle.folders import Checkpoint
    from samestep.checkpoints import Unit

_COUNTS_RANKS = frozenset({DEEPSPEED, TORCH_DCP})
"""Layouts that say themselves how many ranks have to write."""

_PAUSE_SECONDS = 0.2


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
    that cannot be sealed is looked at again when it changes, and one that did not fit when it has rested again. What
    a rotation takes away meanwhile is passed over, and said if it was seen before.

    Args:
        folder: that the training saves into; it may not exist yet.
        attempt: that seals.
        statements: what the files cannot say; the same for every checkpoint.
        already: bundles of the run; what they were sealed from is not sealed again. Only their numbers are kept.
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
        self._carrier = carrier
        self._numbers: dict[int, list[int]] = {}
        for bundle in already:
            self._remember(bundle)
        self._resting: dict[str, tuple[Mapping[str, FileState], float]] = {}
        self._done: dict[str, Mapping[str, FileState]] = {}
        self._told: dict[str, str] = {}
        self._missed: list[str] = []

    def watch(
        self, tell: Callable[[Seen], None], *, interval: float = 1.0, stop: threading.Event | None = None
    ) -> None:
        """Look again and again until ``stop`` is set, and then until everything there has rested.

        Raises:
            FencedError: a newer attempt has registered.
        """
        stop = stop or threading.Event()
        while not stop.wait(interval):
            for seen in self.look():
                tell(seen)
        for seen in self.finish():
            tell(seen)

    def finish(self) -> Iterator[Seen]:
        """Seal what is there when the training has ended; what may still lack a file rests first.

        Raises:
            FencedError: a newer attempt has registered.
        """
        yield from self.look(at_once=True)
        until = time.monotonic() + self._settle_seconds + _PAUSE_SECONDS
        while self._resting and time.monotonic() < until:
            time.sleep(_PAUSE_SECONDS / 4)
            yield from self.look()
        for path in sorted(self._resting):
            yield from self._problem(path, CommitRefused("it was still being written to"))

    def look(self, *, at_once: bool = False) -> Iterator[Seen]:
        """Look once, seal what is finished, lowest step first, and say what became of it.

        Args:
            at_once: a checkpoint whose layout says that nothing is missing need not rest.

        Raises:
            FencedError: a newer attempt has registered: nothing can be sealed any more.
        """
        met: set[str] = set()
        worked = True
        while worked:  # sealing takes its time: what was listed before may be gone
            worked = False
            for unit in self._units():
                if not worked and unit.path not in met:
                    met.add(unit.path)
                    for seen in self._attend(unit, at_once=at_once):
                        worked = True
                        yield seen
        while self._missed:
            gone = "it was taken away before it was sealed"
            yield Seen(
                self._missed.pop(0), None, CommitRefused(gone, hint="let the training keep more of them")
            )

    def _units(self) -> list[Unit]:
        """List what is there, and forget what is not any more."""
        try:
            units = find_units(self._folder) if self._folder.is_dir() else []
        except OSError:  # the folder changes under the search: it is looked at again soon
            return []
        paths = {unit.path for unit in units}
        self._missed += sorted(self._resting.keys() - paths)
        for known in (self._resting, self._done, self._told):
            for path in known.keys() - paths:
                del known[path]
        return units

    def _attend(self, unit: Unit, *, at_once: bool) -> Iterator[Seen]:
        try:
            if self._is_due(unit, at_once=at_once):
                yield from self._seal(unit)
        except FencedError:
            raise
        except (SamestepError, OSError) as error:
            if not self._is_there(unit):
                self._resting.pop(unit.path, None)
                self._missed.append(unit.path)
            elif isinstance(error, OSError):
                yield from self._problem(unit.path, CheckpointError(f"{unit.path} cannot be read: {error}"))
            else:
                yield from self._problem(unit.path, error)

    def _is_there(self, unit: Unit) -> bool:
        return os.path.lexists(self._folder / unit.path)

    def _is_due(self, unit: Unit, *, at_once: bool) -> bool:
        """Tell whether a checkpoint has to be looked into: it is new or changed, and rests."""
        states = states_of(self._folder, unit)
        if not states or self._done.get(unit.path) == states:
            return False
        before, since = self._resting.get(unit.path, ({}, 0.0))
        if before != states:
            since = time.monotonic()
            self._resting[unit.path] = (states, since)
        return time.monotonic() - since >= self._settle_seconds or (at_once and self._says_whole(unit))

    def _says_whole(self, unit: Unit) -> bool:
        """Tell whether the layout itself says that no file is missing, be it one of a rank that is slower."""
        if unit.framework == UNKNOWN or not inspect_unit(self._folder, unit).whole:
            return False
        return unit.framework in _COUNTS_RANKS or all(rank_of(name) is None for name in unit.files)

    def _seal(self, unit: Unit) -> Iterator[Seen]:
        states = self._resting.pop(unit.path)[0]
        try:
            checkpoint = look_at_unit(self._folder, unit)
            if not self._is_sealed(checkpoint):
                self._require_not_passed(checkpoint)
                bundle = seal(self._attempt, checkpoint, self._statements, carrier=self._carrier)
                self._remember(bundle)
                yield Seen(unit.path, bundle)
        except SamestepError as error:
            if isinstance(error, NoRoom) or (
                isinstance(error, StoreError) and not isinstance(error, CommitRefused)
            ):
                raise  # the place failed, not the checkpoint: it is tried again
            if not self._is_there(unit):
                self._missed.append(unit.path)
                return
            yield from self._problem(unit.path, error)
        self._done[unit.path] = states

    def _remember(self, bundle: Bundle) -> None:
        self._numbers.setdefault(bundle.step, []).append(bundle.number)

    def _is_sealed(self, checkpoint: Checkpoint) -> bool:
        chain = self._attempt.chain
        records = [chain.look(number) for number in self._numbers.get(checkpoint.step, ())]
        if self._attempt.newest is not None:
            records.append(self._attempt.newest)
        return any(
            isinstance(record, CommitRecord) and is_sealed_as(checkpoint, Bundle(record))
            for record in records
        )

    def _require_not_passed(self, checkpoint: Checkpoint) -> None:
        newest = self._attempt.newest
        if newest is not None and checkpoint.step < newest.bundle.step:
            raise CommitRefused(
                f"its step {checkpoint.step} lies before step {newest.bundle.step} of {newest.bundle.id}, which the "
                "run continues",
                hint="seal checkpoints in the order of their steps",
            )

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
