"""Holds: what keeps a bundle from being pruned, either a person's pin or a restore that is reading it."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING

from samestep.bundle import canonical
from samestep.bundle.chain import given_up
from samestep.bundle.errors import BundleRetired, RequestError, StoreError
from samestep.bundle.identity import new_nonce, utc_text
from samestep.bundle.paths import bundle_folder
from samestep.bundle.storage.base import AlreadyThere

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samestep.bundle.chain import Chain
    from samestep.bundle.records import BundleRef
    from samestep.bundle.storage.base import Entry, Storage

HOLD_SCHEMA = "samestep.hold/1"
RESTORE_SECONDS = 24 * 3600.0
"""After this time a restore that has not renewed its hold counts as dead."""

_PIN, _RESTORE = "pin-", "restore-"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_HOLD = re.compile(r"^bundles/[^/]+/\.holds/([^/]+)\.json$")


def pin(chain: Chain, ref: BundleRef, *, name: str = "pin", because: str = "") -> None:
    """Keep a bundle until it is unpinned; the same name twice is one pin.

    Raises:
        BundleRetired: it was given up before the pin could count.
        StoreError: the name cannot be used, or the place failed.
    """
    _place(chain, ref, _PIN + _checked(name), because)


def unpin(storage: Storage, ref: BundleRef, *, name: str = "pin") -> bool:
    """Take a pin away; returns whether there was one."""
    key = _key(ref.id, _PIN + _checked(name))
    there = storage.size(key) is not None
    storage.remove([key])
    return there


@contextlib.contextmanager
def restoring(chain: Chain, ref: BundleRef) -> Iterator[RestoreHold]:
    """Hold a bundle while it is read, if the place takes the hold.

    One that does not, because it is full or may only be read, is no reason not to read from it: ``refused`` says so.

    Raises:
        BundleRetired: it was given up before the hold could count.
        StoreError: the place failed.
    """
    hold = RestoreHold(chain, ref)
    try:
        yield hold
    finally:
        with contextlib.suppress(StoreError):
            hold.release()


class RestoreHold:
    """The hold of one running restore.

    Attributes:
        refused: why there is none; empty when there is one.
    """

    def __init__(self, chain: Chain, ref: BundleRef) -> None:
        self._chain, self._ref = chain, ref
        self._name = self.refused = ""
        try:
            self._replace()
        except BundleRetired:
            raise
        except StoreError as error:
            self.refused = error.message
            _require_kept(chain, ref)
            self._placed = time.monotonic()

    def renew(self) -> None:
        """Say that the restore is still running; does nothing before a fraction of the time has passed.

        When the place does not take it now, the hold there is still counts, and the next renewal comes in time.
        """
        if self._name and time.monotonic() - self._placed > RESTORE_SECONDS / 8:
            try:
                self._replace()
            except BundleRetired:
                raise
            except StoreError:
                self._placed = time.monotonic()

    def release(self) -> None:
        """Take the hold away."""
        if self._name:
            self._chain.storage.remove([_key(self._ref.id, self._name)])

    def _replace(self) -> None:
        """Place a hold, and take away the one before it once the new one counts."""
        old, new = self._name, _RESTORE + new_nonce()
        try:
            _place(self._chain, self._ref, new, "a restore is reading it")
        except StoreError:
            with contextlib.suppress(StoreError):  # whether it was written is not known
                self._chain.storage.remove([_key(self._ref.id, new)])
            raise
        self._name, self._placed = new, time.monotonic()
        if old:
            self._chain.storage.remove([_key(self._ref.id, old)])


def counting_holds(entries: Iterable[Entry], now: float) -> list[str]:
    """Return the names of the holds among ``entries`` that count.

    Args:
        entries: what a listing shows of a bundle's folder.
        now: seconds since 1970; a restore whose hold is much older is taken for dead.
    """
    found = ((entry, _HOLD.search(entry.key)) for entry in entries)
    return sorted(
        match[1]
        for entry, match in found
        if match and (match[1].startswith(_PIN) or now - entry.modified < RESTORE_SECONDS)
    )


def holds_on(storage: Storage, bundle: str, now: float) -> list[str]:
    """Return the names of the holds on a bundle that count; see ``counting_holds``."""
    return counting_holds(storage.entries(_folder(bundle)), now)


def pins_on(storage: Storage, bundle: str) -> list[str]:
    """Return the names of the pins on a bundle."""
    names = holds_on(storage, bundle, now=time.time())
    return [name.removeprefix(_PIN) for name in names if name.startswith(_PIN)]


def _place(chain: Chain, ref: BundleRef, name: str, because: str) -> None:
    """Write a hold, and only then look whether it came too late.

    Whoever prunes appends the retirement and only then looks for holds again, so at least one of the two sees the
    other.
    """
    record = {
        "schema": HOLD_SCHEMA,
        "bundle": ref.id,
        "name": name,
        "because": because,
        "written": utc_text(),
    }
    key, own = _key(ref.id, name), True
    try:
        chain.storage.create(key, canonical.encode(record))
    except AlreadyThere:
        own = name.startswith(_RESTORE)  # such a name is used once: a lost reply
    try:
        _require_kept(chain, ref)
    except BundleRetired:
        if own:
            chain.storage.remove([key])
        raise


def _require_kept(chain: Chain, ref: BundleRef) -> None:
    if given_up(chain, ref, chain.head(at_least=ref.number)):
        raise BundleRetired(
            f"{ref.id} of step {ref.step} was given up by a retirement", hint="choose a bundle that is kept"
        )


def _key(bundle: str, name: str) -> str:
    return f"{_folder(bundle)}{name}.json"


def _folder(bundle: str) -> str:
    return f"{bundle_folder(bundle)}.holds/"


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise RequestError(
            f"{ascii(name)[:80]} cannot be the name of a pin",
            hint="use lower-case letters, digits and -, at most 64",
        )
    return name
