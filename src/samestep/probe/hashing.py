"""The fast digest of memory: the script's own xxhash, or the one that samestep has brought where it fits."""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Digest = Callable[[Any], bytes]

_EXTENSION = "_xxhash"


def find(folder: str) -> Digest | None:
    """Return a function from bytes to their 16-byte xxh3 digest; None where there is none for this interpreter.

    Args:
        folder: of samestep's own xxhash package; its extension is loaded without becoming importable for the script,
            and only when its file name says that it was built for this interpreter.
    """
    try:
        from xxhash import xxh3_128_digest
    except ImportError:
        return _borrowed(folder)
    return xxh3_128_digest


def _borrowed(folder: str) -> Digest | None:
    paths = [os.path.join(folder, _EXTENSION + suffix) for suffix in _own_suffixes()]  # noqa: PTH118
    path = next((path for path in paths if folder and os.path.exists(path)), None)  # noqa: PTH110
    if path is None:
        return None
    known = sys.modules.get(_EXTENSION)
    try:
        spec = importlib.util.spec_from_file_location(
            _EXTENSION, path, loader=ExtensionFileLoader(_EXTENSION, path)
        )
        module: Any = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        digest: Digest = module.xxh3_128_digest
    except Exception:
        return None
    if known is None:
        sys.modules.pop(_EXTENSION, None)
    return digest


def _own_suffixes() -> list[str]:
    """Return the endings that name this very interpreter or its stable interface, not the bare ``.so`` of any."""
    return [suffix for suffix in EXTENSION_SUFFIXES if suffix != ".so"]
