"""What capturing and restoring training state raises on purpose.

SamestepError
└── StateError        a training state cannot be captured, or does not fit what it is restored into
    └── RankFailed    another rank could not do its share of a save or restore
"""

from __future__ import annotations

from samestep.errors import ExitCode, SamestepError

CHANGED_MEANWHILE = "state-changed"
"""Slug of a save whose state was changed while it was copied."""


class StateError(SamestepError):
    """A training state cannot be captured, or does not fit what it is restored into.

    Args:
        message: what happened, where, and what was expected.
        slug: what kind of misfit it is: ``state-mismatch``, ``unknown-leaf``, ``optimizer-groups``, …
        hint: what to do next.
    """

    slug = "state"
    exit_code = ExitCode.USAGE

    def __init__(self, message: str, *, slug: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        if slug:
            self.slug = slug  # type: ignore[misc]


class RankFailed(StateError):  # noqa: N818 - what happened reads better than a suffix
    """A rank could not do its share, so that nothing was committed or loaded on any."""

    slug = "rank-failed"
    exit_code = ExitCode.INCONCLUSIVE
