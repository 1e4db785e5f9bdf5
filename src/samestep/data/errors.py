"""What following the data raises on purpose.

SamestepError
└── DataError         the data cannot be followed or put back as asked
    ├── NotFollowed   a loader or sampler cannot be replayed, and nobody has said that this is accepted
    ├── DataChanged   the data, its order or the way it is read is not what the saved position belongs to
    └── ReplayDiffers the replayed stream does not come to the batch that training used last
"""

from __future__ import annotations

from samestep.errors import ExitCode, SamestepError


class DataError(SamestepError):
    """The data cannot be followed or put back as asked."""

    slug = "data"


class NotFollowed(DataError):  # noqa: N818 - what happened reads better than a suffix
    """A loader or sampler cannot be replayed, and nobody has said that this is accepted."""

    slug = "data-not-followed"


class DataChanged(DataError):  # noqa: N818 - what happened reads better than a suffix
    """The data, its order or the way it is read is not what the saved position belongs to."""

    slug = "data-changed"


class ReplayDiffers(DataError):  # noqa: N818 - what happened reads better than a suffix
    """The replayed stream does not come to the batch that training used last."""

    slug = "data-replay-differs"
    exit_code = ExitCode.DEFECT
