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
    from types import TracebackType


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


class _Hinted(contextlib.ContextDecorator):
    """See ``hinted``; a generator would take five times as long, and this is met in every step."""

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, SamestepError) and error.hint and not hasattr(error, "__notes__"):
            error.add_note(f"hint: {error.hint}")


def hinted() -> _Hinted:
    """Let the traceback that a script ends with show what to do next, too: in ``with``, or as a decorator."""
    return _Hinted()
