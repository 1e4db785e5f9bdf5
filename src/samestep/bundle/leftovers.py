"""What no bundle needs any more: parts of retired bundles, and of saves that can never be committed."""

from __future__ import annotations

import dataclasses
import re
import time
from typing import TYPE_CHECKING, Any

from samestep.bundle import canonical
from samestep.bundle.chain import Chain, Unreadable, newest_ordinal
from samestep.bundle.errors import FormatError
from samestep.bundle.holds import counting_holds
from samestep.bundle.paths import part_key
from samestep.bundle.records import BundleRef, CommitRecord, RemoveRecord, RetireRecord
from samestep.bundle.saving import SAVING_SCHEMA, marker_key
from samestep.bundle.storage.base import Absent
from samestep.bundle.verifying import in_parallel

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from samestep.bundle.storage.base import Entry, Storage

NAMELESS_SECONDS = 24 * 3600.0
"""After this time a folder that does not say whose save it was is taken for garbage."""

_FOLDER = re.compile(r"bundles/(b-[0-9a-z]+-[0-9a-f]+)/")
_MARKER_LIMIT = 1 << 16


@dataclasses.dataclass
class Folder:
    """What lies in the folder of one bundle."""

    bundle: str
    entries: list[Entry] = dataclasses.field(default_factory=list)
    ref: BundleRef | None = None  #: known when a retirement names the bundle


def folders_of(storage: Storage) -> dict[str, Folder]:
    """List everything below ``bundles/``, by bundle."""
    found: dict[str, Folder] = {}
    for entry in storage.entries("bundles/"):
        match = _FOLDER.match(entry.key)
        if match:
            found.setdefault(match[1], Folder(match[1])).entries.append(entry)
    return found


class Leftovers:
    """The folders of bundles that are not alive.

    Args:
        chain: of the run.
        folders: by bundle, listed before ``head`` was looked for: whatever was committed before that is known.
        head: of the chain.
        alive: the bundles that stay, by id.
        retired: bundles that are known to be given up, by id.

    Attributes:
        dead: the folders that no living bundle owns and no save can ever make one of. Those that began as saves of
            another run are left alone: this chain cannot say what becomes of them.

    Raises:
        FormatError: a record cannot be read, so that what is needed is not known.
    """

    def __init__(
        self,
        chain: Chain,
        folders: Mapping[str, Folder],
        *,
        head: int,
        alive: Mapping[str, BundleRef],
        retired: Mapping[str, BundleRef],
    ) -> None:
        self._chain, self._head, self._alive, self._now = chain, head, dict(alive), time.time()
        self._newest_attempt, _ = newest_ordinal(chain, head)
        self._needed = self._needed_elsewhere() if folders.keys() - alive.keys() else set()
        self._markers = {
            id_: self._marker(folder)
            for id_, folder in folders.items()
            if id_ not in alive and not self._is_only_needed(folder)
        }
        self._markers = {id_: marker for id_, marker in self._markers.items() if self._is_of_this_run(marker)}
        given_up = {**self._given_up_since(folders, retired), **retired}
        self.dead = [
            dataclasses.replace(folders[id_], ref=given_up.get(id_))
            for id_ in self._markers
            if id_ in given_up or self._can_never_be_committed(folders[id_])
        ]

    def held(self) -> list[BundleRef]:
        """Return the retired bundles that somebody holds."""
        return [
            folder.ref for folder in self.dead if folder.ref and counting_holds(folder.entries, self._now)
        ]

    def spare(self, refs: Iterable[BundleRef]) -> None:
        """Count ``refs`` among the living again."""
        self._alive |= {ref.id: ref for ref in refs}
        self._needed = self._needed_elsewhere()
        self.dead = [folder for folder in self.dead if folder.bundle not in self._alive]

    def keep_only_settled(self) -> None:
        """Keep among the dead what may be removed without another word in the chain.

        That is what a removal has named before, and every save that was never committed: no one can hold it.
        """
        sure = {
            folder.bundle
            for folder in self.dead
            if self._markers[folder.bundle]
            and not folder.ref
            and self._is_fenced(self._markers[folder.bundle])
        }
        named: set[str] = set()
        since = min((self._markers[id_]["after"] for id_ in self._markers if self._markers[id_]), default=0)
        for record in self._chain.backwards(self._head, down_to=since + 1):
            if isinstance(record, RemoveRecord):
                named |= set(record.bundles)
            elif isinstance(record, CommitRecord):
                sure.discard(record.bundle.id)
            elif isinstance(record, Unreadable):
                sure.clear()
        self.dead = [folder for folder in self.dead if folder.bundle in named | sure]

    def removable(self) -> list[list[Entry]]:
        """Return what may be removed, in the order in which to remove it: the notes of whose save it was last."""
        parts: list[Entry] = []
        markers: list[Entry] = []
        for folder in self.dead:
            marker = marker_key(folder.bundle)
            stays = any(entry.key in self._needed for entry in folder.entries)
            parts += [
                entry for entry in folder.entries if entry.key not in self._needed and entry.key != marker
            ]
            markers += [entry for entry in folder.entries if entry.key == marker and not stays]
        return [parts, markers]

    def _needed_elsewhere(self) -> set[str]:
        """Return the keys in other bundles' folders that living bundles refer to."""
        keys = set()
        for record in in_parallel(self._chain.read, [ref.number for ref in self._alive.values()]):
            if isinstance(record, CommitRecord):
                keys |= {
                    part_key(part.stored_in, part.path) for part in record.bundle.parts if part.stored_in
                }
        return keys

    def _is_only_needed(self, folder: Folder) -> bool:
        """Whether nothing is left of a bundle but what others need, and the note of whose save it was."""
        keys = {entry.key for entry in folder.entries} - {marker_key(folder.bundle)}
        return bool(keys) and keys <= self._needed

    def _given_up_since(
        self, folders: Mapping[str, Folder], retired: Mapping[str, BundleRef]
    ) -> dict[str, BundleRef]:
        """Look for retirements of bundles that may just as well be saves that are going on, or are held."""
        since = min(
            (
                marker["after"]
                for id_, marker in self._markers.items()
                if marker and id_ not in retired
                if not self._is_fenced(marker) or counting_holds(folders[id_].entries, self._now)
            ),
            default=self._head,
        )
        found: dict[str, BundleRef] = {}
        for record in self._chain.backwards(self._head, down_to=since + 1):
            if isinstance(record, RetireRecord):
                found |= {ref.id: ref for ref in record.bundles}
        return found

    def _is_of_this_run(self, marker: dict[str, Any]) -> bool:
        return not marker or marker["run"] == self._chain.run

    def _is_fenced(self, marker: dict[str, Any]) -> bool:
        return int(marker["attempt_ordinal"]) < self._newest_attempt

    def _can_never_be_committed(self, folder: Folder) -> bool:
        """Whether the attempt whose save it was is fenced; every commit it made before is known."""
        marker = self._markers[folder.bundle]
        if marker:
            return self._is_fenced(marker)
        return self._now - max(entry.modified for entry in folder.entries) > NAMELESS_SECONDS

    def _marker(self, folder: Folder) -> dict[str, Any]:
        """Return the note of whose save it was, empty when there is none that can be read."""
        key = marker_key(folder.bundle)
        if all(entry.key != key for entry in folder.entries):
            return {}
        try:
            found = canonical.decode(self._chain.storage.read(key, limit=_MARKER_LIMIT), what=key)
        except (Absent, FormatError):
            return {}
        known = isinstance(found, dict) and found.get("schema") == SAVING_SCHEMA
        return (
            found
            if known
            and isinstance(found.get("run"), str)
            and all(isinstance(found.get(name), int) for name in ("attempt_ordinal", "after"))
            else {}
        )
