"""What a manifest may tell about the machine that wrote it: no secrets, no absolute paths."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from samestep.bundle.errors import FormatError
from samestep.contract.redaction import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from samestep.bundle.manifest import Manifest

HIDDEN_PATH = "<path>"

_ABSOLUTE = re.compile(
    r"(?:(?<=[\s=:,;|<>\"'`(\[{])|^)(?:file:/+|~[\w.-]*/|/(?=[^\s/])|[A-Za-z]:[\\/](?!/)|\\\\)[^\s:;,|\"'`)\]}]*"
)
"""A path from the root, the home folder or a drive, at the beginning of a word; the path of a URL is none."""


def without_private(values: Mapping[str, str]) -> dict[str, str]:
    """Return ``values`` with secrets replaced by ``***`` and absolute paths by ``<path>``."""
    return {name: _cleaned(name, value) for name, value in values.items()}


def private_removed(manifest: Manifest) -> Manifest:
    """Return the manifest as it may be written: nothing private in its code and environment values."""
    return msgspec.structs.replace(
        manifest, code=without_private(manifest.code), environment=without_private(manifest.environment)
    )


def check_privacy(manifest: Manifest) -> None:
    """Refuse to write what ``private_removed`` would hide. A reader does not ask: rules get stricter with time.

    Raises:
        FormatError: the message names the value without showing it.
    """
    for field in ("code", "environment"):
        for name, value in getattr(manifest, field).items():
            if _cleaned(name, value) != value:
                raise FormatError(
                    f"{field}.{name} of {manifest.id} holds a secret or an absolute path, which a bundle never does",
                    hint="Leave it out, or put its digest there.",
                )


def _cleaned(name: str, value: str) -> str:
    shown = redacted([f"--{name}", value])[1]
    return _ABSOLUTE.sub(HIDDEN_PATH, shown)
