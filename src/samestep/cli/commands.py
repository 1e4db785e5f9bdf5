"""What the verbs that run a command share: the command itself, where results go, and lists of words."""

from __future__ import annotations

import secrets
import shutil
import time
from pathlib import Path

from samestep.errors import MachineError, UsageError


def require_program(program: str) -> None:
    """Refuse a command whose program cannot be run from here.

    Raises:
        UsageError: it is not on PATH, and no file that can be executed.
    """
    if shutil.which(program) is None:
        what = "cannot be executed" if Path(program).is_file() else "not found"
        raise UsageError(f"command {what}: {program}", hint="is it installed, executable, and on PATH?")


def project_root(folder: Path) -> Path:
    """Return the nearest folder at or above ``folder`` that holds ``.git``, else ``folder`` itself."""
    return next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)


def new_run_id() -> str:
    """Return a run id that sorts by time."""
    return time.strftime("%Y%m%d-%H%M%S-") + secrets.token_hex(2)


def prepare_run_folder(folder: Path) -> None:
    """Make the run's folder inside a ``.samestep`` that git ignores by itself.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True)
        keep_from_git(folder.parents[1])
    except OSError as error:
        raise MachineError(
            f"cannot write results to {folder}: {error.strerror}",
            hint="make the project's folder writable, or free some space on its disk",
        ) from error


def keep_from_git(folder: Path) -> None:
    """Let git ignore a folder by itself.

    Raises:
        OSError: it cannot be written.
    """
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n", encoding="utf-8")


def split_words(values: tuple[str, ...]) -> tuple[str, ...]:
    """Take comma-separated values apart."""
    return tuple(word.strip() for value in values for word in value.split(",") if word.strip())
