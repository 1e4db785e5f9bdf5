"""What the bundle store raises on purpose.

SamestepError
└── StoreError           the store cannot be used, or the place behind it failed
    ├── StoreMissing     there is no store here
    ├── FormatError      a record or manifest is malformed or of a format this version does not know
    ├── DamageError      stored bytes are not what the manifest says
    ├── FencedError      a newer attempt has taken over; this one may not commit any more
    ├── CommitRefused    the bundle would not be complete, or cannot fit
    ├── DecisionOutdated the store has changed since it was decided from where to go on
    ├── BundleRetired    the bundle was given up by a retirement
    ├── NothingToResume  the store holds no bundle yet
    └── AllDamaged       the store holds bundles, and none of them can be resumed from
"""

from __future__ import annotations

from samestep.errors import ExitCode, SamestepError


class StoreError(SamestepError):
    """The store cannot be used, or the place behind it failed."""

    slug = "store"


class StoreMissing(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """There is no store at this place."""

    slug = "store-missing"


class FormatError(StoreError):
    """A record or manifest is malformed, or of a format this version does not know."""

    slug = "bundle-format"


class DamageError(StoreError):
    """Stored bytes are not what the manifest says; the message names the part."""

    slug = "bundle-damaged"
    exit_code = ExitCode.DEFECT


class FencedError(StoreError):
    """A newer attempt of the run has registered; this one may not commit any more."""

    slug = "attempt-fenced"
    exit_code = ExitCode.DEFECT


class CommitRefused(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The bundle would not be complete, or there is no room for it."""

    slug = "commit-refused"


class DecisionOutdated(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The store has changed since it was decided from where to go on; select again."""

    slug = "decision-outdated"


class BundleRetired(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The bundle was given up by a retirement; its parts may be gone."""

    slug = "bundle-retired"


class NothingToResume(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The store holds no bundle yet: a first start, not a loss."""

    slug = "nothing-to-resume"
    exit_code = ExitCode.NOTHING_RAN


class AllDamaged(StoreError):  # noqa: N818 - what happened reads better than a suffix
    """The store holds bundles and none of them can be resumed from."""

    slug = "all-damaged"
    exit_code = ExitCode.DEFECT
