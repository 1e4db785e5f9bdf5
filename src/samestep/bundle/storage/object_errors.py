"""What an object store's client says, in words for a user and without anything secret."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError

from samestep.bundle.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

FAILURES = (BaseError, OSError, ValueError, NotImplementedError)
"""Every kind of exception that the client answers with."""

_LONGEST = 300
_BROKEN_CONNECTION = "kind: Interrupted"
_RETRIED = re.compile(r"\bafter \d+ retries\b")
_LOST_UPLOAD = re.compile(r"\b(NoSuchUpload|InvalidBlockList)\b")
_MISSING_CONTAINER = re.compile(r"\b(NoSuchBucket|ContainerNotFound|The specified bucket does not exist)\b")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_RANGE = re.compile(r"\brange\b", re.IGNORECASE)
_QUERY = re.compile(r"\?\S+")
_LOGIN = re.compile(r"//[^/@\s]*@")
_MACHINE_ROLE = "169.254.169.254"
_NO_CREDENTIALS = (
    "No credentials stand in the environment, and this machine has no role to take them from. Profiles are not read: "
    'for AWS, run eval "$(aws configure export-credentials --format env)" first.'
)
_HINTS: Mapping[type[Exception], str] = {
    UnauthenticatedError: "Check the credentials in the environment: whether they are set, and still valid.",
    PermissionDeniedError: "Give these credentials leave to read, write, list and delete below this address.",
}


def place_failed(doing: str, error: Exception) -> StoreError:
    """Return the error for a user; ``doing`` names the address and what was tried."""
    if container_is_missing(error):
        return StoreError(
            f"{doing} failed: the bucket or container does not exist",
            hint="Create it, or correct the address.",
        )
    return StoreError(f"{doing} failed: {reason(error)}", hint=_hint(error))


def container_is_missing(error: Exception) -> bool:
    """Return whether nothing was found because the whole bucket is not there."""
    return bool(_MISSING_CONTAINER.search(str(error)))


def may_be_repeated(error: Exception) -> bool:
    """Return whether the same request, if it is safe to repeat, should be made again.

    The client makes a request again whose connection broke only where the provider promises that twice is as good as
    once, which is not so of conditional puts. And it does not know that the pieces of an upload are gone because the
    upload was completed: the reply to its own first try was lost.
    """
    text = str(error)
    if _LOST_UPLOAD.search(text):
        return True
    return _BROKEN_CONNECTION in text and not _RETRIED.search(text)


def is_about_range(error: Exception) -> bool:
    """Return whether bytes were asked for that a stored thing does not have."""
    return isinstance(error, BaseError) and bool(_RANGE.search(str(error)))


def reason(error: Exception) -> str:
    """Return the client's own words on one line.

    A server's answer may repeat access keys and signatures (S3 sends back the text that was signed), and an
    address may carry a signature in its query: neither is repeated, only the answer's code.
    """
    text = str(error)
    code = _CODE.search(text)
    shown = text.partition("\n\nDebug source")[0].partition("<")[0].partition("{")[0]
    shown = _LOGIN.sub("//", _QUERY.sub("", shown))
    shown = " ".join(shown.split()).rstrip(": ")[:_LONGEST]
    return f"{shown} ({code.group(1)})" if code else shown


def _hint(error: Exception) -> str:
    if _MACHINE_ROLE in str(error):
        return _NO_CREDENTIALS
    for kind, hint in _HINTS.items():
        if isinstance(error, kind):
            return hint
    return "Check the address, the network and the endpoint; then try again."
