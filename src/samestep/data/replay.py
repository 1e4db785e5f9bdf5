"""Whether the samples after a save point can be had again, and under which conditions."""

from __future__ import annotations

from typing import Self

import msgspec

from samestep.contract.words import Word


class Replay(Word):
    """How far a stream of samples can be had again."""

    EXACT = "exact"
    FROM_OFFSET = "from-offset"
    NOT_REPLAYABLE = "not-replayable"


class Replayability(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a resume decision and a report say about continuing the data.

    Attributes:
        kind: how far the samples can be had again.
        how: by what: the order, the loader's own state, or a count of batches; empty when they cannot.
        rule: from an offset: what happens to data that arrives late or has changed.
        because: not replayable: the reason.
        limits: what is not the same although the samples are; each a sentence.
    """

    kind: Replay
    how: str = ""
    rule: str = ""
    because: str = ""
    limits: tuple[str, ...] = ()

    @classmethod
    def exact(cls, how: str, *limits: str) -> Self:
        """Return that every sample comes again as it came."""
        return cls(kind=Replay.EXACT, how=how, limits=limits)

    @classmethod
    def from_offset(cls, rule: str) -> Self:
        """Return that the stream goes on from a stored offset; ``rule`` says what happens to late or changed data."""
        return cls(kind=Replay.FROM_OFFSET, how="the loader's own state", rule=rule)

    @classmethod
    def none(cls, because: str) -> Self:
        """Return that a resumed run goes on with other samples, and why that is accepted."""
        return cls(kind=Replay.NOT_REPLAYABLE, because=because)

    @property
    def sentence(self) -> str:
        """The whole of it, for people."""
        said = {
            Replay.EXACT: f"the data goes on exactly, by {self.how}",
            Replay.FROM_OFFSET: f"the data goes on from its stored offset; {self.rule}",
            Replay.NOT_REPLAYABLE: f"the data cannot be replayed: {self.because}",
        }[self.kind]
        return "; ".join((said, *self.limits))
