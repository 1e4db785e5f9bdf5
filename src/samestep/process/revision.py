"""Which revision of the code a folder holds, as git tells."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_SECONDS: Final = 10


def ask_git(folder: Path, *words: str) -> str | None:
    """Return what git answers, None where there is no git, no repository, or no answer in time."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],  # noqa: S607 - the user's own git
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def code_version(folder: Path) -> dict[str, str]:
    """Return the commit that is checked out and whether files of it were changed; nothing outside a repository."""
    commit = ask_git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    changes = ask_git(folder, "status", "--porcelain", "--untracked-files=no")
    changed = "not known" if changes is None else "yes" if changes else "no"
    return {"commit": commit, "changed": changed}
