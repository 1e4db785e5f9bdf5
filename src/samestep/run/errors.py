"""What the run API raises on purpose.

SamestepError
└── RunError           the run cannot be made as asked
    ├── ContractOpen   state is alive in the process and nobody has said what becomes of it
    ├── MethodChanged  what would go on is not the run that was interrupted
    └── SaveFailed     a save left no bundle; the bundles before it are as they were
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from samestep.errors import ExitCode, SamestepError

if TYPE_CHECKING:
    from collections.abc import Iterator


class RunError(SamestepError):
    """The run cannot be made as asked."""

    slug = "run"


class ContractOpen(RunError):  # noqa: N818 - what happened reads better than a suffix
    """State is alive in the process and nobody has said what becomes of it."""

    slug = "contract-open"


class MethodChanged(RunError):  # noqa: N818 - what happened reads better than a suffix
    """What would go on is not the run that was interrupted."""

    slug = "method-changed"


class SaveFailed(RunError):  # noqa: N818 - what happened reads better than a suffix
    """A save left no bundle; the bundles before it are as they were."""

    slug = "save-failed"
    exit_code = ExitCode.DEFECT


@contextlib.contextmanager
def hinted() -> Iterator[None]:
    """Let the traceback that a script ends with show what to do next, too."""
    try:
        yield
    except SamestepError as error:
        if error.hint and not hasattr(error, "__notes__"):
            error.add_note(f"hint: {error.hint}")
        raise
