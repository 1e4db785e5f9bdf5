"""The processes that train together, as saving and restoring see them."""

from __future__ import annotations

from typing import Protocol


class Ranks(Protocol):
    """All ranks of a training. Every rank makes the same calls in the same order.

    Attributes:
        rank: of this process, from 0.
        size: how many there are.
    """

    rank: int
    size: int

    def exchange(self, data: bytes) -> list[bytes]:
        """Give ``data`` to every rank and return what each of them gave, by rank.

        Raises:
            SamestepError: a rank did not answer within the time limit.
        """

    def barrier(self) -> None:
        """Return when every rank has called."""


class Alone:
    """A process that trains by itself."""

    rank = 0
    size = 1

    def exchange(self, data: bytes) -> list[bytes]:
        """Return the only data there is."""
        return [data]

    def barrier(self) -> None:
        """Wait for nobody."""
