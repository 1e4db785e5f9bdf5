"""A committed bundle, as the rest of samestep handles it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from samestep.bundle.paths import part_key
from samestep.bundle.records import BundleRef, CommitRecord

if TYPE_CHECKING:
    from samestep.bundle.manifest import Manifest, Part


@dataclasses.dataclass(frozen=True)
class Bundle:
    """One complete state of a run: its manifest, and the record that made it exist."""

    record: CommitRecord

    @property
    def manifest(self) -> Manifest:
        """What it holds and rests on."""
        return self.record.bundle

    @property
    def id(self) -> str:
        """Its id, unique and sortable by time."""
        return self.record.bundle.id

    @property
    def number(self) -> int:
        """The number of its commit in the chain."""
        return self.record.number

    @property
    def step(self) -> int:
        """Completed optimizer updates."""
        return self.record.bundle.step

    @property
    def ref(self) -> BundleRef:
        """How other records name it."""
        return BundleRef(id=self.id, number=self.number, step=self.step)

    def key_of(self, part: Part) -> str:
        """Return the key under which the bytes of ``part`` are stored."""
        return part_key(part.stored_in or self.id, part.path)
