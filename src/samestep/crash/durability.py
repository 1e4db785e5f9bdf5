"""What would get lost if the power failed now: a running account of data and names that are not durable yet."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.replay import DATA, NAMES, SIZES, changed

if TYPE_CHECKING:
    from samestep.crash.contents import Content
    from samestep.crash.replay import Effect


class Names(enum.Enum):
    """How changes of names and sizes become durable."""

    AT_ONCE = "at once"  # before the call returns
    IN_ORDER = "in order"  # through a journal: an fsync of anything brings all that came before
    EACH = "each"  # a name by an fsync of its folder, a size by an fsync of its file


@dataclass(frozen=True, slots=True)
class Rules:
    """What makes things durable besides fsync, fdatasync and sync.

    Attributes:
        names: how names and sizes become durable.
        close: closing a file writes its data back (NFS: close-to-open consistency).
        rename_over: a rename over an existing name writes the file's data back first (ext4, ``auto_da_alloc``).
        rewrite_close: so does closing a file that was truncated to nothing and rewritten (ext4, likewise).
        size_first: while data is written back, the new size may be on disk before it (ext4, ``dioread_nolock``).
    """

    names: Names = Names.IN_ORDER
    close: bool = False
    rename_over: bool = False
    rewrite_close: bool = False
    size_first: bool = False


@dataclass(frozen=True, slots=True)
class Loss:
    """What a file loses when its unsynced data does.

    Attributes:
        since: index of the first write that is not durable.
        lost: the file without any of it.
        low: first byte that was written.
        high: where the written bytes end.
    """

    since: int
    lost: Content
    low: int
    high: int


@dataclass
class Account:
    """The account of one order of operations under certain rules.

    Attributes:
        rules: what makes things durable.
        data: for each file with unsynced data, what it would lose.
        names: changes of names and sizes that are not durable, in order.
        forced: index of the newest operation up to which all names were forced to be durable.
    """

    rules: Rules
    data: dict[int, Loss] = field(default_factory=dict)
    names: list[Effect] = field(default_factory=list)
    forced: int = -1
    _synced: dict[int, int] = field(default_factory=dict)
    _all_synced: int = -1
    _rewritten: set[int] = field(default_factory=set)
    _touched: dict[int, int] = field(default_factory=dict)

    def never_kept(self, node: int, loss: Loss) -> bool:
        """Tell whether nothing ever made a file's data durable, whatever became of its names.

        What ext4 writes back along with a rename or close counts only once that rename or close is on disk.
        """
        return max(self._synced.get(node, -1), self._all_synced) < loss.since

    def enter(self, effect: Effect, before: Content) -> None:
        """Take an operation into account.

        Args:
            effect: the operation.
            before: the file's bytes before it.
        """
        kind, node = effect.kind, effect.node
        if kind in DATA:
            self._write(effect, before)
        elif kind in SIZES:
            self._resize(effect, before)
        elif kind in NAMES:
            self._rename(effect)
        elif kind is Kind.CLOSE:
            if self.rules.close:
                self._synced[node] = effect.index
            if self.rules.close or (self.rules.rewrite_close and node in self._rewritten):
                self.data.pop(node, None)
            self._rewritten.discard(node)
        elif kind in {Kind.SYNC, Kind.SYNC_DATA, Kind.SYNC_ALL}:
            self._sync(effect)
        if kind in DATA | SIZES | {Kind.CREATE}:
            self._touched[node] = effect.index

    def _write(self, effect: Effect, before: Content) -> None:
        offset = 0 if effect.kind is Kind.STORED else effect.operation.offset
        end = offset + effect.operation.size
        loss = self.data.get(effect.node) or Loss(effect.index, before, offset, end)
        self.data[effect.node] = replace(loss, low=min(loss.low, offset), high=max(loss.high, end))

    def _resize(self, effect: Effect, before: Content) -> None:
        loss = self.data.get(effect.node)
        if loss:
            high = min(loss.high, changed(before, effect).size)
            lost = changed(loss.lost, effect)
            self.data[effect.node] = replace(loss, lost=lost, low=min(loss.low, high), high=high)
        if effect.kind is Kind.TRUNCATE and not effect.operation.size and before.size:
            self._rewritten.add(effect.node)
        self._note(effect)

    def _rename(self, effect: Effect) -> None:
        over = effect.kind is Kind.RENAME and effect.replaced not in {None, effect.node}
        if over and self.rules.rename_over:
            self.data.pop(effect.node, None)
        self._note(effect)

    def _note(self, effect: Effect) -> None:
        if self.rules.names is not Names.AT_ONCE:
            self.names.append(effect)

    def _sync(self, effect: Effect) -> None:
        if effect.kind is Kind.SYNC_ALL:
            self.data.clear()
            self._all_synced = effect.index
        self._synced[effect.node] = effect.index
        self.data.pop(effect.node, None)
        if self.rules.names is Names.EACH and effect.kind is not Kind.SYNC_ALL:
            self.names = [name for name in self.names if not _kept_by(effect.node, name)]
            return
        upto = self._touched.get(effect.node, -1) if effect.kind is Kind.SYNC_DATA else effect.index
        self.forced = max(self.forced, upto)
        self.names = [name for name in self.names if name.index > upto]


def _kept_by(node: int, effect: Effect) -> bool:
    """Tell whether an fsync of a folder (or file) keeps a change of a name in it (or of its size)."""
    entry = effect.target or effect.source
    return effect.node == node if entry is None or effect.kind in SIZES else entry[0] == node
