"""What selection answers: from where to go on and why, as a record that is shown before any work starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NoReturn

import msgspec

from samestep.bundle.errors import AllDamaged, NothingToResume, StoreError
from samestep.bundle.records import BundleRef

if TYPE_CHECKING:
    from collections.abc import Iterator

DECISION_SCHEMA = "samestep.decision/1"

PASSED_OVER = frozenset({"abandoned", "retired", "zombie-attempt"})
"""Reasons that say that a bundle is no candidate; all others say that a candidate cannot be used."""


class SetAside(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A newer bundle, or a record that may have been one, and why it was not chosen."""

    number: int
    reason: str  #: a slug, such as ``part-missing``
    text: str
    bundle: str = ""  #: empty when the record cannot be read
    step: int | None = None


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """From where to go on.

    Outcomes: ``resume`` (there is a bundle), ``empty`` (the run has none yet), ``damaged`` (it has some, and none
    can be used), ``refused`` (an older one could be used, and the policy forbids to fall back to it).
    """

    schema: str = DECISION_SCHEMA
    outcome: Literal["resume", "empty", "damaged", "refused"]
    run: str
    intent: str  #: ``resume``, ``new-run`` or ``weights``
    policy: str  #: ``fallback`` or ``strict``
    head: int  #: number of the newest record that was taken into account
    bundle: str | None = None
    number: int | None = None
    step: int | None = None
    next_step: int | None = None
    steps_lost: int | None = None  #: known when the cut step is
    data_version: str = ""
    environment: dict[str, str] = {}  #: what the bundle expects around it
    set_aside: tuple[SetAside, ...] = ()
    decided: str  #: UTC, ISO 8601

    def checked_ref(self) -> BundleRef | None:
        """Return the bundle to go on from, None for a run that has none yet.

        Raises:
            AllDamaged: the decision is not one to go on from.
            StoreError: it was not taken to continue the run.
        """
        if self.intent != "resume":
            raise StoreError(
                f"a decision with the intent {self.intent} does not continue {self.run}",
                hint="a new run gets a root of its own, with its lineage and reason",
            )
        return None if self.outcome == "empty" else self.required()

    def required(self) -> BundleRef:
        """Return the bundle that was chosen.

        Raises:
            NothingToResume: the run has none yet.
            AllDamaged: none can be used, or only one that the policy forbids.
        """
        if self.bundle is None or self.number is None or self.step is None:
            self._raise()
        return BundleRef(id=self.bundle, number=self.number, step=self.step)

    def text(self) -> str:
        """Return what a person reads before any work starts."""
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield self._headline()
        if self.bundle is not None:
            if self.intent == "resume":
                yield f"  next step   {self.next_step}"
                yield f"  steps lost  {'not known' if self.steps_lost is None else self.steps_lost}"
            yield f"  data        {self.data_version or 'no version recorded'}"
            yield f"  expects     {_joined(self.environment) or 'nothing recorded'}"
        for one in self.set_aside:
            step = "" if one.step is None else f" (step {one.step})"
            yield f"  set aside   {one.bundle or f'record {one.number}'}{step}: {one.reason}: {one.text}"

    def _headline(self) -> str:
        if self.outcome == "empty":
            return f"{self.run} holds no bundle yet: it begins at step 0"
        if self.outcome == "damaged":
            return f"{self.run} holds bundles, and none of them can be used{self._newest_fault}"
        if self.outcome == "refused":
            return (
                f"{self.run} cannot go on from its newest bundle, and the policy strict forbids an older one"
                f"{self._newest_fault}"
            )
        verb = {"resume": "resumes from", "new-run": "gives a new run its start from"}.get(
            self.intent, "gives the"
        )
        weights = " weights of" if self.intent == "weights" else ""
        return f"{self.run} {verb}{weights} {self.bundle}, step {self.step}"

    @property
    def _newest_fault(self) -> str:
        """What keeps the newest candidate from being used: the one line that every log shows."""
        fault = next((one for one in self.set_aside if one.reason not in PASSED_OVER), None)
        if fault is None:
            return ""
        return f": {fault.bundle or f'record {fault.number}'}: {fault.text}"

    def _raise(self) -> NoReturn:
        if self.outcome == "empty":
            raise NothingToResume(f"{self.run} holds no bundle yet", hint="start it from the beginning")
        hint = "look at each with samestep bundle verify"
        if self.outcome == "refused":
            hint = "allow the policy fallback to go on from an older bundle, or mend the newest"
        raise AllDamaged(self.text(), hint=hint)


def _joined(environment: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(environment.items()))
