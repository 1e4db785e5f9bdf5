"""What can be wrong with the inputs of a prediction.

CostError
├── CaseError       a case says something that cannot be used
├── OffersError     offers cannot be read
└── MeasuringError  what was measured cannot be read, or does not suffice
"""

from __future__ import annotations

from samestep.errors import SamestepError


class CostError(SamestepError):
    """A prediction cannot be made from what was given."""

    slug = "cost"


class CaseError(CostError):
    """A case says something that cannot be used; the message names file, line and key."""

    slug = "cost-case"


class OffersError(CostError):
    """Offers cannot be read."""

    slug = "cost-offers"


class MeasuringError(CostError):
    """What was measured cannot be read, or does not suffice."""

    slug = "cost-measured"
