"""What the bundle store raises on purpose.

SamestepError
└── StoreError           the store cannot be used, or the place behind it failed
    ├── StoreMissing     there is no store here
    ├── RequestError     what was asked of the store cannot be done as asked
    │   └── StepBehind   a save of a step before the one that the run has reached
    ├── FormatError      a record or manifest is malformed or of a format this version does not know
    ├── DamageError      stored bytes are not what the manifest says
    ├── UnreadableError  one stored thing cannot be read, or ends too early, and the place works otherwise
    ├── FencedError      a newer attempt has taken over; this one may not commit any more
    ├── CommitRefused    the bundle would not be complete
    │   └── NoRoom       it does not fit; the same save may be tried again when there is room
    ├── DecisionOutdated the store has changed since it was decided from where to go on
    ├── BundleRetired    the bundle was given up by a retirement
    ├── NothingToResume  the store holds no bundle yet
    └── AllDamaged       the store holds bundles, and none of them can be resumed from

A program that starts trainings decides by the exit code: 5 says that there is nothing to lose, and only that; 1 that
something is there and cannot be used; 4 that it could not be found out, so that trying again may help.
"""

from __future__ import annotations

from samestep.errors import ExitCode, SamestepError


class StoreError(SamestepError):
    """The store cannot be used, or the place behind it failed."""

    slug = "store"
    exit_code = ExitCode.INCONCLUSIVE


class StoreMissing(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """There is no store at this place."""

    slug = "store-missing"
    exit_code = ExitCode.NOTHING_RAN


class RequestError(StoreError):
    """What was asked of the store cannot be done as asked."""

    slug = "store-request"
    exit_code = ExitCode.USAGE


class StepBehind(RequestError):  # noqa: N818 - what happened reads better than a suffix
    """A save was asked for of a step before the one that the run has reached; going back is another run."""

    slug = "step-behind"


class FormatError(StoreError):
    """A record or manifest is malformed, or of a format this version does not know."""

    slug = "bundle-format"
    exit_code = ExitCode.DEFECT


class DamageError(StoreError):
    """Stored bytes are not what the manifest says; the message names the part."""

    slug = "bundle-damaged"
    exit_code = ExitCode.DEFECT


class UnreadableError(StoreError):
    """One stored thing cannot be read or ends too early, though the place answers."""

    slug = "unreadable"


class FencedError(StoreError):
    """A newer attempt of the run has registered; this one may not commit any more."""

    slug = "attempt-fenced"
    exit_code = ExitCode.DEFECT


class CommitRefused(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The bundle would not be complete, or there is no room for it."""

    slug = "commit-refused"
    exit_code = ExitCode.USAGE


class NoRoom(CommitRefused):
    """There is no room for it now; the same save may be tried again when there is."""

    slug = "no-room"
    exit_code = ExitCode.INCONCLUSIVE


class DecisionOutdated(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The store has changed since it was decided from where to go on; select again."""

    slug = "decision-outdated"


class BundleRetired(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The bundle was given up by a retirement; its parts may be gone."""

    slug = "bundle-retired"
    exit_code = ExitCode.USAGE


class NothingToResume(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The store holds no bundle yet: a first start, not a loss."""

    slug = "nothing-to-resume"
    exit_code = ExitCode.NOTHING_RAN


class AllDamaged(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The store holds bundles and none of them can be resumed from."""

    slug = "all-damaged"
    exit_code = ExitCode.DEFECT
