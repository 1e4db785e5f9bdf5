"""What callers of a bundle store were told, and what must hold from then on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from crash.store_work import SLASH


class Said(NamedTuple):
    """Something that a caller was told, or was about to ask for.

    Attributes:
        after: index of the last operation on the disk before it.
        word: e.g. ``committed``.
        details: the rest.
    """

    after: int
    word: str
    details: tuple[str, ...] = ()


@dataclass
class Needs:
    """What was promised.

    Attributes:
        run: id of the run; empty when none was promised.
        newest: number of the newest commit that was acknowledged.
        records: ids of the commits and attempts that were acknowledged, by number.
        pinned: ids of bundles that stay until they are unpinned.
        damaged: ids of bundles that somebody from outside has damaged.
        restored: folders that are there, with the step of their bundle.
        restoring: folders that may be there.
        placed: folders in which a bundle stands beside other things, with its step.
        placing: folders in which it may stand.
        broken: what the process itself has found broken.
    """

    run: str = ""
    newest: int = 0
    records: dict[int, str] = field(default_factory=dict)
    pinned: set[str] = field(default_factory=set)
    damaged: set[str] = field(default_factory=set)
    restored: dict[str, int] = field(default_factory=dict)
    restoring: dict[str, int] = field(default_factory=dict)
    placed: dict[str, int] = field(default_factory=dict)
    placing: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, said):
        needs = cls()
        for _, word, details in said:
            needs._take(word, *details)
        return needs

    def _take(self, word, *details):
        if word == "created":
            self.run = details[0]
        elif word in {"registered", "committed"}:
            self.records[int(details[0])] = details[1]
            self.newest = int(details[0]) if word == "committed" else self.newest
        elif word in {"pinned", "damaged"}:
            getattr(self, word).add(details[1])
        elif word == "unpinning":
            self.pinned.discard(details[1])
        elif word in {"restored", "restoring", "placed", "placing"}:
            getattr(self, word)[details[0].replace(SLASH, "/")] = int(details[1])
        elif word in {"unrefused", "broken"}:
            self.broken.append(" ".join((word, *details)))
