"""One save set up for interruptions: its operations bound to files, and the moments at which it can be cut off."""

from __future__ import annotations

import bisect
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from samestep.crash.operations import Kind
from samestep.crash.ranks import other_orders
from samestep.crash.replay import CHANGES, DATA, NAMES, SIZES, SYNCS, Replay, take_effect, undo_names
from samestep.crash.wording import described, final_names, safe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from samestep.crash.contents import Content
    from samestep.crash.image import Entry, Image
    from samestep.crash.ranks import Order
    from samestep.crash.recording import Recording
    from samestep.crash.replay import Effect
    from samestep.crash.windows import Window

_COMMITS = frozenset({Kind.RENAME, Kind.LINK})
_REMOVES = frozenset({Kind.UNLINK, Kind.RMDIR})


@dataclass(frozen=True, slots=True)
class Cut:
    """A moment at which the save can be cut off.

    Attributes:
        label: ``start``, or ``op-045``: after operation 45; the ranks that stand elsewhere follow.
        after: index of the last operation that took effect.
        last: that operation in words.
        image: what was there, as the process saw it.
        done: positions of the effects that were carried out, for an order other than the recorded one.
        position: how many effects were carried out in the recorded order.
        moment: more than a write among others: names, sizes or durability changed, or a run of writes began or ended.
        changing: the image is not the one of the cut before.
        write: the write that ends here, if it is one of those that are tried torn.
        tears: the ways in which it is.
        weight: 0 for the neighbourhood of a commit, 1 for the end of a file or of an old checkpoint, else 2.
    """

    label: str
    after: int
    last: str
    image: Image
    done: tuple[int, ...] | None
    position: int
    moment: bool = True
    changing: bool = True
    write: int | None = None
    tears: tuple[str, ...] = ()
    weight: int = 2


@dataclass
class Scene:
    """A save window, ready to be interrupted.

    Attributes:
        window: the window.
        start: what was there before it; all of it counts as durable.
        effects: what its operations did, others among them included.
        own: for each effect, whether it is the window's own.
        before: for each effect, the file's bytes before it.
        cuts: all moments, in order.
        runs: runs of writes to one file.
        moments: cuts in the recorded order that are more than a write among others.
        ranks: ranks that took part.
    """

    window: Window
    start: Image
    effects: list[Effect] = field(default_factory=list)
    own: list[bool] = field(default_factory=list)
    before: list[Content] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    runs: int = 0
    moments: int = 0
    ranks: int = 1
    _entries: dict[int, list[Entry]] = field(default_factory=dict)
    _labels: dict[int, str] = field(default_factory=dict)
    _touches: dict[Entry | None, list[int]] = field(default_factory=dict)
    _positions: dict[int, int] = field(default_factory=dict)
    _final: dict[str, str] = field(default_factory=dict)
    _width: int = 3
    _amid: bool = False

    @classmethod
    def of(cls, recording: Recording, window: Window, base: Image) -> Scene:
        """Set up a window.

        Args:
            recording: all operations.
            window: one of its saves.
            base: what was there before the recording.
        """
        steps = Replay(base, recording)
        for operation in recording.operations[: window.first]:
            steps.step(operation)
        scene = cls(window, steps.image.compact())
        scene._amid = window.first > 0 and recording.operations[window.first - 1].together
        scene._width = max(3, len(str(len(window.operations) - 1)))
        scene._final = final_names(recording.operations[window.first : window.last + 1])
        own = set(window.operations)
        for operation in recording.operations[window.first : window.last + 1]:
            before = steps.image.copy()
            for effect in steps.step(operation):
                scene.effects.append(effect)
                scene.own.append(operation.index in own and not effect.implied)
                scene.before.append(before.content(effect.node))
        scene._note_names()
        scene._find_cuts()
        return scene

    def path_of(self, image: Image, number: int) -> str | None:
        """Return a path, relative to the root, that leads to a file in an image of this scene."""
        if number == image.find(image.root):
            return ""
        for entry in reversed(self._entries.get(number, [])):
            if image.at(entry) == number:
                parent = self.path_of(image, entry[0])
                if parent is not None:
                    return f"{parent}/{entry[1]}" if parent else entry[1]
        return None

    def label_of(self, number: int) -> str:
        """Return a short name for a file, different from that of every other in this window."""
        return self._labels.get(number, f"file-{number}")

    def op_label(self, index: int) -> str:
        """Return ``op-045`` for the operation that 45 others of this window come before."""
        return f"op-{bisect.bisect_left(self.window.operations, index):0{self._width}d}"

    def described(self, effect: Effect) -> str:
        """Say what an effect's operation did."""
        return described(effect.operation, self.start.root, self._final)

    def without(self, cut: Cut, missing: Effect) -> Image:
        """Return the image of a cut if the change of names of one effect had never happened."""
        at = self._positions[id(missing)] if cut.done is None else -1
        entries = {missing.source, missing.target} - {None}
        if at >= 0 and not any(
            at < later < cut.position for entry in entries for later in self._touches[entry]
        ):
            image = cut.image.copy()
            undo_names(image, missing)
            return image
        image = self.start.copy()
        for position in range(cut.position) if cut.done is None else cut.done:
            effect = self.effects[position]
            take_effect(image, effect, named=effect is not missing)
        return image

    # setting up

    def _note_names(self) -> None:
        for number, entry in self.start.entries():
            self._entries.setdefault(number, []).append(entry)
        names: dict[int, str] = {}
        for position, effect in enumerate(self.effects):
            self._positions[id(effect)] = position
            if effect.target is not None:
                self._entries.setdefault(effect.node, []).append(effect.target)
            for touched in (effect.source, effect.target):
                self._touches.setdefault(touched, []).append(position)
            if self.own[position]:
                moved = effect.kind in _COMMITS
                names[effect.node] = effect.operation.target if moved else effect.operation.path
        written = {effect.node for effect in self._own_effects() if effect.kind in DATA}
        self._labels = _distinct(names, written, self.start.root)

    def _find_cuts(self) -> None:
        runs = list(self._write_runs())
        writes, ends = _writes_that_count(runs), {run[-1] for run in runs}
        bounds = ends | {run[0] for run in runs}
        self.runs = len(runs)
        self.ranks = len({effect.operation.rank for effect in self._own_effects()} - {None}) or 1
        index = self.window.first - 1
        self.cuts.append(Cut("start", index, "nothing of this save", self.start.copy(), None, 0, weight=1))
        image = self.start.copy()
        for position, effect in enumerate(self.effects):
            take_effect(image, effect)
            moment = position in bounds or effect.kind in NAMES | SIZES | SYNCS | {Kind.CLOSE}
            known = self.own[position] and not effect.operation.together
            if known and (moment or position in writes):
                self.cuts.append(
                    self._cut(position, image.copy(), writes, moment=moment, end=position in ends)
                )
        if self._amid and len(self.cuts) > 1:
            del self.cuts[0]  # nobody knows what was there just before this save
        self.moments = sum(cut.moment for cut in self.cuts)
        if self.ranks > 1:
            self._vary_ranks()

    def _own_effects(self) -> list[Effect]:
        return [effect for effect, own in zip(self.effects, self.own, strict=True) if own]

    def _cut(
        self, position: int, image: Image, writes: dict[int, tuple[str, ...]], *, moment: bool, end: bool
    ) -> Cut:
        effect = self.effects[position]
        return Cut(
            self.op_label(effect.index),
            effect.index,
            self.described(effect),
            image,
            None,
            position + 1,
            moment=moment,
            changing=effect.kind in CHANGES,
            write=position if position in writes else None,
            tears=writes.get(position, ()) if self._was_seen_to_begin(position) else (),
            weight=self._weight(position, end=end),
        )

    def _was_seen_to_begin(self, position: int) -> bool:
        """Say whether what was there just before an effect is known: else a write may have been no write there."""
        return not (self.effects[position - 1].operation.together if position else self._amid)

    def _weight(self, position: int, *, end: bool) -> int:
        rest = (at for at in range(position + 1, len(self.effects)) if self.own[at])
        following = next((at for at in rest if self.effects[at].kind in CHANGES), None)
        kinds = {
            self.effects[position].kind,
            Kind.RENAME if following is None else self.effects[following].kind,
        }
        if kinds & _COMMITS:
            return 0
        return 1 if end or kinds & _REMOVES else 2

    def _write_runs(self) -> Iterator[list[int]]:
        """Yield the positions of each run of writes to one file, with nothing else done to that file in between."""
        open_runs: dict[int, list[int]] = {}
        for position, effect in enumerate(self.effects):
            if not self.own[position]:
                continue
            if effect.kind in DATA:
                open_runs.setdefault(effect.node, []).append(position)
            elif effect.kind in CHANGES | SYNCS | {Kind.CLOSE} and effect.node in open_runs:
                yield open_runs.pop(effect.node)
        yield from open_runs.values()

    def _vary_ranks(self) -> None:
        moments = [cut for cut in self.cuts if cut.moment and cut.position]
        for cut in moments:
            for order in other_orders(self.effects, self.own, cut.position):
                self.cuts.append(self._reordered(cut, order))

    def _reordered(self, cut: Cut, order: Order) -> Cut:
        image = self.start.copy()
        for position in order.done:
            take_effect(image, self.effects[position])
        return Cut(
            f"{cut.label}-rank-{order.rank}-{order.word}",
            cut.after,
            f"{cut.last}; rank {order.rank} {order.word}",
            image,
            order.done,
            len(order.done),
            weight=cut.weight,
        )


def _writes_that_count(runs: Iterable[list[int]]) -> dict[int, tuple[str, ...]]:
    """Collapse runs of writes to their first, middle, last but one and last; return in which ways each is torn."""
    counted: dict[int, tuple[str, ...]] = {}
    for run in runs:
        counted[run[max(len(run) - 2, 0)]] = ()
        counted[run[len(run) // 2]] = ("torn-half",)
        counted[run[0]] = ("torn-first-byte", "torn-half")
        counted[run[-1]] = ("torn-half", "torn-last-page")
        if len(run) == 1:
            counted[run[0]] = ("torn-first-byte", "torn-half", "torn-last-page")
    return counted


def _distinct(paths: dict[int, str], written: set[int], root: str) -> dict[int, str]:
    """Return a label for each file: its name where no other written file has it, else its path; no label twice."""
    short = {number: safe(path.rsplit("/", 1)[-1]) for number, path in paths.items()}
    times = Counter(short[number] for number in written)
    labels: dict[int, str] = {}
    taken: set[str] = set()
    for number in sorted(paths, key=lambda number: number not in written):
        whole = safe(paths[number].removeprefix(f"{root}/").replace("/", "+"))
        label = candidate = short[number] if number in written and times[short[number]] == 1 else whole
        again = 2
        while candidate in taken:
            candidate, again = f"{label}={again}", again + 1
        taken.add(candidate)
        labels[number] = candidate
    return labels
