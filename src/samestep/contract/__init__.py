"""The words samestep speaks: components, intents, outcomes, severities and findings. Pure."""

from .findings import FINDINGS, FindingKind
from .words import Component, Family, Intent, Outcome, Severity, worst_outcome

__all__ = ["FINDINGS", "Component", "Family", "FindingKind", "Intent", "Outcome", "Severity", "worst_outcome"]
