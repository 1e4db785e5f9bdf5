"""One save: parts first, each checked, then the one act that makes the bundle exist."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Self

import msgspec

from samestep.bundle import canonical
from samestep.bundle.bundles import Bundle
from samestep.bundle.errors import CommitRefused, DamageError, FencedError, FormatError, StoreError
from samestep.bundle.identity import new_bundle_id, new_nonce, utc_text
from samestep.bundle.manifest import Data, Manifest, Part, Row, Timings, World, check_manifest
from samestep.bundle.parts import PartWriter, check_room
from samestep.bundle.paths import bundle_folder, part_key
from samestep.bundle.privacy import private_removed
from samestep.bundle.storage.base import AlreadyThere

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samestep.bundle.attempts import Attempt
    from samestep.bundle.storage.base import Content

SAVING_SCHEMA = "samestep.saving/1"


def marker_key(bundle: str) -> str:
    """Return the key of the note that says whose save a folder began as, and after which record."""
    return bundle_folder(bundle) + ".saving.json"


class Saving:
    """A bundle under construction. Left by an exception it is abandoned; used as a context it must be committed.

    Args:
        attempt: that saves.
        step: completed optimizer updates.
        size_bytes: of all parts together, as far as known.

    Raises:
        NoRoom: there is no room.
        StoreError: the place failed.
    """

    def __init__(self, attempt: Attempt, *, step: int, size_bytes: int = 0) -> None:
        self.id = new_bundle_id()
        self.step = step
        self._attempt = attempt
        self._storage = attempt.chain.storage
        self._nonce = new_nonce()
        self._started = time.time()
        self._base = attempt.newest.bundle if attempt.newest else None
        self._parts = PartWriter(self._storage, self.id, self._base, attempt.sound)
        self._may_be_published = False
        self._closed = ""
        check_room(self._storage, size_bytes)
        with contextlib.suppress(AlreadyThere):  # nobody else uses this id: a lost reply, and it is there
            self._storage.create(marker_key(self.id), canonical.encode(self._marker()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._closed:
            with contextlib.suppress(StoreError):
                self.abandon()

    def add(
        self,
        path: str,
        content: Content,
        *,
        components: Sequence[str] = (),
        expected_digest: str = "",
        rank: int | None = None,
        share: bool = True,
    ) -> Part:
        """Store a part; see ``PartWriter.add``. May be called from several threads."""
        self._require_open()
        return self._parts.add(
            path, content, components=components, expected_digest=expected_digest, rank=rank, share=share
        )

    def take(self, part: Part) -> None:
        """Take in a part that another rank has stored and settled with a ``PartWriter`` of its own."""
        self._require_open()
        self._parts.take(part)

    def commit(
        self,
        *,
        contract: Mapping[str, Row],
        progress: Any = None,
        data: Data | None = None,
        code: Mapping[str, str] | None = None,
        config_digest: str = "",
        environment: Mapping[str, str] | None = None,
        world: World | None = None,
        state_ready: float | None = None,
        origin: str = "state",
        framework: str = "",
        name: str = "",
        journal: Sequence[str] = (),
        allow_open_rows: bool = False,
    ) -> Bundle:
        """Make sure of every part and publish the bundle.

        After a ``StoreError`` it is unknown whether the bundle exists; calling again with the same arguments finds
        out and finishes.

        Args:
            contract: what becomes of each component. A component that parts say they carry needs no row.
            progress: counters beside the step; values that canonical JSON can hold.
            data: position in the data and its version.
            code: what identifies the code, by name.
            config_digest: of the configuration, with its algorithm: ``sha256:…``.
            environment: what the bundle expects around it, by name.
            world: the ranks that made it.
            state_ready: when the training could go on, in seconds since 1970.
            origin: ``state`` or ``sealed``.
            framework: whose files the parts are.
            name: of the sealed folder.
            journal: keys of the journal segments carried with this commit.
            allow_open_rows: publish although nobody has said what becomes of a component. Such a bundle can be
                used for its weights and is never resumed from.

        Raises:
            CommitRefused: it has no parts, a row is open, or the manifest would not be one that can be read.
            DamageError: a stored part does not have the size that was written.
            FencedError: a newer attempt has registered. The parts are garbage.
            StoreError: the place failed.
        """
        self._require_open()
        manifest = private_removed(
            Manifest(
                id=self.id,
                attempt=self._attempt.id,
                step=self.step,
                parts=tuple(self._parts.parts),
                contract=_with_carried(contract, self._parts.parts),
                created=utc_text(self._started),
                origin=origin,
                framework=framework,
                name=name,
                progress=progress,
                data=data or Data(),
                code=dict(code or {}),
                config_digest=config_digest,
                environment=dict(environment or {}),
                world=world or World(),
                timings=Timings(started=self._started, state_ready=state_ready),
                journal=tuple(journal),
            )
        )
        self._check(manifest, allow_open_rows=allow_open_rows)
        return self._publish(manifest)

    def abandon(self) -> None:
        """Give the save up and remove what it stored, unless it may have been published after all."""
        self._closed = self._closed or "was abandoned"
        if not self._may_be_published:
            entries = {entry.key for entry in self._storage.entries(bundle_folder(self.id))}
            marker = marker_key(self.id)
            self._attempt.sound.difference_update(entries)
            self._storage.remove(sorted(entries - {marker}))
            self._storage.remove([marker])

    def _publish(self, manifest: Manifest) -> Bundle:
        def secure() -> Manifest:
            secured = self._secured(manifest)
            self._may_be_published = True
            return secured

        before = self._may_be_published
        try:
            record = self._attempt.publish(self._nonce, secure)
        except FencedError as error:
            self._may_be_published = False
            self._closed = f"was not committed: {error.message}"
            raise
        except (FormatError, CommitRefused, DamageError):
            self._may_be_published = before
            raise
        self._closed = "was committed"
        return Bundle(record)

    def _secured(self, manifest: Manifest) -> Manifest:
        """Return the manifest when its parts are durable, of the right size, and held by bundles that stay."""
        self._parts.settle()
        durable = time.time()
        wrong = self._wrongly_stored()
        anew = [part for part in self._parts.parts if part.share_depth and self._is_lost(part, wrong)]
        if anew:
            self._parts.store_anew(anew)
            self._parts.settle()
            wrong = self._wrongly_stored()
        for part, size in wrong.items():
            found = "is not there" if size is None else f"has {size:,} bytes"
            raise DamageError(
                f"{part.path} of {self.id} {found} in {self._storage.url}; {part.size:,} bytes were stored",
                hint="save again; the bundle was not published",
            )
        timings = msgspec.structs.replace(manifest.timings, parts_durable=durable, committing=time.time())
        return msgspec.structs.replace(manifest, parts=tuple(self._parts.parts), timings=timings)

    def _is_lost(self, shared: Part, wrong: Mapping[Part, int | None]) -> bool:
        """Whether the bytes of a shared part are not right, or may be removed: a name of one's own keeps them."""
        base_given_up = self._base is not None and self._attempt.has_given_up(self._base.id)
        return shared in wrong or (base_given_up and bool(shared.stored_in))

    def _wrongly_stored(self) -> dict[Part, int | None]:
        """Ask the place for the size of every part; return those that differ, with the size that was found."""
        expected = {part_key(part.stored_in or self.id, part.path): part for part in self._parts.parts}
        sizes = self._storage.sizes(expected)
        return {part: sizes[key] for key, part in expected.items() if sizes[key] != part.size}

    def _check(self, manifest: Manifest, *, allow_open_rows: bool) -> None:
        if not manifest.parts:
            raise CommitRefused(f"{self.id} was not committed: it has no parts")
        if manifest.open_rows and not allow_open_rows:
            raise CommitRefused(
                f"{self.id} was not committed: nothing says what becomes of {', '.join(manifest.open_rows)}",
                hint="save each, or say how it is rebuilt and which test shows it, or why it is irrelevant",
            )
        try:
            check_manifest(manifest)
        except FormatError as error:
            raise CommitRefused(f"{self.id} was not committed: {error.message}", hint=error.hint) from error

    def _require_open(self) -> None:
        if self._closed:
            raise CommitRefused(f"{self.id} {self._closed}", hint="begin another save")

    def _marker(self) -> dict[str, Any]:
        return {
            "schema": SAVING_SCHEMA,
            "run": self._attempt.chain.run,
            "bundle": self.id,
            "attempt": self._attempt.id,
            "attempt_ordinal": self._attempt.ordinal,
            "after": self._attempt.known,
            "started": utc_text(self._started),
        }


def _with_carried(contract: Mapping[str, Row], parts: Sequence[Part]) -> dict[str, Row]:
    """Return the contract with a row for every component that parts say they carry."""
    carried: dict[str, list[str]] = {}
    for part in parts:
        for component in part.components:
            carried.setdefault(component, []).append(part.path)
    return {name: Row(state="saved", parts=tuple(paths)) for name, paths in carried.items()} | dict(contract)
