"""From what a user writes, a path or a URL, to the place it means."""

from __future__ import annotations

import re
import urllib.parse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from samestep.bundle.errors import RequestError
from samestep.bundle.storage.local import LocalStorage

if TYPE_CHECKING:
    from samestep.bundle.storage.base import Storage

_URL: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<rest>.*)", re.DOTALL)
_OBJECTS: Final = ("s3", "gs", "az", "memory")


def open_storage(where: str | Path) -> Storage:
    """Return the place that ``where`` names; nothing is made or asked there yet.

    Args:
        where: a path, ``file:///PATH``, ``s3://BUCKET/PREFIX``, ``gs://…``, ``az://…`` or ``memory:``.

    Raises:
        RequestError: it names no place that can keep a store.
    """
    match = None if isinstance(where, Path) else _URL.fullmatch(where)
    if match is None:
        return _folder(str(where))
    scheme = match["scheme"].lower()
    if scheme == "file":
        return _folder_of_url(str(where))
    if scheme in _OBJECTS:
        from samestep.bundle.storage.objects import open_object_store

        return open_object_store(str(where))
    if not match["rest"].startswith("//"):
        return _folder(str(where))  # a file name with a colon in it
    raise RequestError(
        f"{scheme}:// is no place that samestep can keep a store in",
        hint="Use a path, file://, s3://, gs:// or az://.",
    )


def _folder(path: str) -> LocalStorage:
    if not path or "\0" in path:
        raise RequestError(f"{path!r} is not the path of a folder", hint="Name the folder of the store.")
    try:
        return LocalStorage(Path(path).expanduser())
    except RuntimeError as error:
        raise RequestError(f"{path} names no folder: {error}", hint="Write the whole path.") from error


def _folder_of_url(url: str) -> LocalStorage:
    parts = urllib.parse.urlsplit(url)
    if (
        parts.netloc not in {"", "localhost"}
        or not parts.path.startswith("/")
        or parts.query
        or parts.fragment
    ):
        raise RequestError(
            f"{url} is not a folder of this machine", hint="Write file:///ABSOLUTE/PATH, or just the path."
        )
    return _folder(urllib.parse.unquote(parts.path))
