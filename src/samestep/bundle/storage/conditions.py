"""Whether a place keeps the one promise that a commit rests on: a taken name stays as it is."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING

from samestep.bundle.errors import StoreError
from samestep.bundle.storage.base import Absent, AlreadyThere

if TYPE_CHECKING:
    from samestep.bundle.storage.base import Storage

PROBE_FOLDER = ".samestep-probe/"
_FIRST, _SECOND = b"first", b"second"


def conditional_create_honoured(storage: Storage) -> bool:
    """Create one name twice and tell whether the place kept the first.

    A backend may accept the condition and ignore it, in silence. The probe's object is removed again,
    where the credentials allow that.

    Raises:
        StoreError: the place failed, so nothing is known.
    """
    key = f"{PROBE_FOLDER}{uuid.uuid4().hex}"
    try:
        # A lost reply makes the client's own retry find the name taken: that counts as created.
        with contextlib.suppress(AlreadyThere):
            storage.create(key, _FIRST)
        return _refused(storage, key) and storage.read(key, limit=len(_SECOND)) == _FIRST
    except Absent:
        raise StoreError(
            f"{storage.url} did not show a small object that was just stored there",
            hint="Check that nothing else deletes objects there, and that reads are not served by a cache.",
        ) from None
    finally:
        with contextlib.suppress(StoreError):
            storage.remove([key])


def require_conditional_create(storage: Storage) -> None:
    """Refuse a place where two writers could both be told that they created the same name.

    An object store is asked once in the life of its handle. A disk is taken at its word: the kernel keeps it.

    Raises:
        StoreError: the place overwrites names that it was told to keep, or could not be asked.
    """
    if not getattr(storage, "honours_conditional_create", True):
        raise StoreError(
            f"{storage.url} ignores the condition of a put (If-None-Match) and overwrites what is there: "
            "two writers could each be told that they committed, and one of them would lose its bundle",
            hint="Keep the run in a store with conditional puts, for example AWS S3, Google Cloud Storage, "
            "Azure Blob Storage, or on a local disk.",
        )


def _refused(storage: Storage, key: str) -> bool:
    try:
        storage.create(key, _SECOND)
    except AlreadyThere:
        return True
    return False
