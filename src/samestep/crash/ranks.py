"""Other orders in which the ranks of a run could have come as far as they did.

A recording shows one order of what several ranks did at the same time. Another is possible where nothing says that one
rank waited for the other. Barriers are not seen, so only this is taken for granted: in the middle of writing one file a
rank waits for nobody. An operation may therefore be swapped with those of other ranks that belong to a file which was
begun before it, as long as both do not touch the same file, name or folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from samestep.crash.replay import Effect

_NEW_SESSION = frozenset({Kind.RENAME, Kind.LINK, Kind.UNLINK, Kind.MKDIR, Kind.RMDIR, Kind.SYMLINK})


@dataclass(frozen=True, slots=True)
class Order:
    """An order that could have been.

    Attributes:
        rank: the rank that stands elsewhere.
        word: ``behind`` the others, or ``ahead`` of them.
        done: positions of the effects that were carried out.
    """

    rank: int
    word: str
    done: tuple[int, ...]


def other_orders(effects: Sequence[Effect], own: Sequence[bool], position: int) -> Iterable[Order]:
    """Yield, for a cut after ``position`` effects, each rank alone as far behind and as far ahead as can be."""
    mine = [at for at, flag in enumerate(own) if flag]
    begun = _begun(effects, mine)
    for rank in sorted({rank for at in mine if (rank := effects[at].operation.rank) is not None}):
        behind = _behind(effects, own, begun, rank, position)
        if behind:
            yield Order(rank, "behind", tuple(at for at in range(position) if at not in behind))
        ahead = _ahead(effects, mine, begun, rank, position)
        if ahead:
            yield Order(rank, "ahead", (*range(position), *ahead))


def _begun(effects: Sequence[Effect], mine: list[int]) -> dict[int, int]:
    """Return for each effect where its rank began with the file it belongs to."""
    begun: dict[int, int] = {}
    previous: dict[int | None, int] = {}
    for at in mine:
        rank = effects[at].operation.rank
        before = previous.get(rank)
        goes_on = (
            before is not None
            and effects[before].node == effects[at].node
            and effects[before].kind is not Kind.CLOSE
            and effects[at].kind not in _NEW_SESSION
        )
        begun[at] = begun[before] if goes_on and before is not None else at
        previous[rank] = at
    return begun


def _behind(
    effects: Sequence[Effect], own: Sequence[bool], begun: dict[int, int], rank: int, position: int
) -> set[int]:
    """Return the last effects of a rank that nothing kept could have waited for."""
    dropped: set[int] = set()
    others: list[int] = []
    for at in range(position - 1, -1, -1):
        if not own[at] or effects[at].operation.rank != rank:
            others.append(at)
            continue
        if any(
            begun.get(other, at) >= at or _clash(effects[other], effects[at])
            for other in others
            if own[other]
        ):
            break
        dropped.add(at)
    return dropped if others and min(dropped, default=position) < max(others) else set()


def _ahead(
    effects: Sequence[Effect], mine: list[int], begun: dict[int, int], rank: int, position: int
) -> list[int]:
    """Return the next effects of a rank that belong to a file it had begun, if others came in between."""
    ahead: list[int] = []
    skipped: list[int] = []
    for at in (at for at in mine if at >= position):
        if effects[at].operation.rank != rank:
            skipped.append(at)
            continue
        if begun[at] >= position or any(_clash(effects[other], effects[at]) for other in skipped):
            break
        ahead.append(at)
    return ahead if skipped and ahead and skipped[0] < ahead[-1] else []


def _clash(first: Effect, second: Effect) -> bool:
    """Tell whether two effects touch the same file, name or folder."""
    if first.node == second.node:
        return True
    entries = {first.source, first.target} & {second.source, second.target} - {None}
    folders = {entry[0] for entry in (first.source, first.target, second.source, second.target) if entry}
    return bool(entries) or first.node in folders or second.node in folders
