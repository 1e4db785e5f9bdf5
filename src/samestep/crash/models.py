"""Persistence models: which disk states an interruption can leave, each as a named rule.

Every model only lists what it allows by itself; a state that several allow is the business of the weakest of them.
"""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from samestep.crash.durability import Account, Names, Rules
from samestep.crash.fates import cut_short, damages, fates_of, in_zeros, kept_bytes
from samestep.crash.replay import CHANGES, NAMES
from samestep.crash.wording import WAYS, safe

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from samestep.crash.contents import Content
    from samestep.crash.durability import Loss
    from samestep.crash.image import Image
    from samestep.crash.replay import Effect
    from samestep.crash.scene import Cut, Scene

MOST_AT_ONCE = 32
"""Most files damaged alone, and most names lost alone, at one moment."""

MOST_IN_ALL = 2400
"""Most files damaged alone, and most names lost alone, in a save; but no less than four at each of its moments."""


@dataclass(frozen=True, slots=True)
class Found:
    """A disk state that a model allows.

    Attributes:
        cut: when the interruption came.
        image: what is on disk.
        suffix: what tells it from other states of this cut; empty when nothing is damaged.
        way: how it is damaged, a key of `WAYS`; empty when nothing is.
        file: label of the damaged file, where it is one.
        damage: the same in words.
        lasting: it may also be found after the whole save has returned.
        after: index of the last operation that took effect, if that is not the one of the cut.
    """

    cut: Cut
    image: Image
    suffix: str = ""
    way: str = ""
    file: str = ""
    damage: str = ""
    lasting: bool = False
    after: int | None = None


class Model(Protocol):
    """A rule for what is on disk after an interruption.

    Attributes:
        name: as users write it.
        requires: what has to happen for such a state, in words.
    """

    name: ClassVar[str]
    requires: ClassVar[str]

    def states(self, scene: Scene) -> Iterator[Found]:
        """Yield every state the model allows, in the order of the operations."""

    def bound(self, scene: Scene) -> tuple[int, str]:
        """Return the most states there can be, and the formula."""


class Kill:
    """The processes die, the kernel lives: what was written is there.

    Every prefix of the operations; a write in flight may have been cut short. Source: POSIX ``write``, which may
    return less than was asked for; a killed writer never comes back for the rest.
    """

    name: ClassVar[str] = "kill"
    requires: ClassVar[str] = "the process was killed; the machine lived on"

    def states(self, scene: Scene) -> Iterator[Found]:
        """Yield every prefix, and the first, middle and last write of each file cut short."""
        for cut in scene.cuts:
            yield from self._torn(scene, cut)
            yield Found(cut, cut.image, lasting=_at_end(scene, cut))

    def _torn(self, scene: Scene, cut: Cut) -> Iterator[Found]:
        if cut.write is None:
            return
        effect, before = scene.effects[cut.write], scene.before[cut.write]
        label, seen = scene.label_of(effect.node), set[int]()
        for way in cut.tears:
            kept = kept_bytes(effect, way)
            if not 0 < kept < effect.operation.size or kept in seen:
                continue
            seen.add(kept)
            image = cut.image.with_content({effect.node: cut_short(effect, before, kept)})
            damage = f"{label}: {WAYS[way]} ({kept} of {effect.operation.size} bytes)"
            yield Found(cut, image, f"{label}-{way}", way, label, damage, after=_before(scene, cut))

    def bound(self, scene: Scene) -> tuple[int, str]:
        """Each moment (both ends of a run of writes are), and for each run two other writes and five torn ones."""
        return _for_ranks(scene, scene.moments + 7 * scene.runs, "m + 7f")


class MachineLost:
    """The machine is gone; the durable folder, on storage of its own, has every operation up to some point.

    For a durable folder with POSIX operations this is `Kill` without torn writes and without what lay elsewhere.
    Source: the storage acknowledges operations one by one and in order.
    """

    name: ClassVar[str] = "machine-lost"
    requires: ClassVar[str] = (
        "the machine was lost; the durable storage keeps every operation it acknowledged"
    )

    def states(self, scene: Scene) -> Iterator[Found]:
        """Yield every prefix."""
        for cut in scene.cuts:
            yield Found(cut, cut.image, lasting=_at_end(scene, cut))

    def bound(self, scene: Scene) -> tuple[int, str]:
        """Each moment (both ends of a run of writes are), and for each run two of its other writes."""
        return _for_ranks(scene, scene.moments + 2 * scene.runs, "m + 2f")


class _PageCache:
    """What models have in common in which data waits in memory for being written back."""

    name: ClassVar[str]
    rules: ClassVar[Rules]

    def states(self, scene: Scene) -> Iterator[Found]:
        """Yield each prefix, with each file damaged alone, all damaged alike, and all newer than one lost."""
        end, unsynced = _final_account(scene, self.rules), set[int]()
        for cut, account in _accounts(scene, self.rules):
            lasting = self._lasts(scene, cut, end)
            yield Found(cut, cut.image, lasting=lasting)
            if cut.changing or lasting or unsynced != account.data.keys():
                yield from self._damaged(scene, cut, account, end if lasting else None)
            unsynced = set(account.data)

    def _lasts(self, scene: Scene, cut: Cut, end: Account) -> bool:
        """Tell whether names may still stand where this cut leaves them after the whole save has returned."""
        if self.rules.names is Names.IN_ORDER and cut.done is None:
            return cut.after >= end.forced
        return _at_end(scene, cut)

    def _damaged(self, scene: Scene, cut: Cut, account: Account, end: Account | None) -> Iterator[Found]:
        """Yield the cut with unsynced data lost, of one file at a time and of all.

        Args:
            scene: the save.
            cut: the moment.
            account: what is not durable then.
            end: what is not durable when the save returns; None if this cut cannot outlast it.
        """
        losses = {
            node: loss for node, loss in account.data.items() if scene.path_of(cut.image, node) is not None
        }
        unsynced = {node for node, loss in losses.items() if end and end.never_kept(node, loss)}
        for node in _most_telling(scene, losses):
            path, label = scene.path_of(cut.image, node), scene.label_of(node)
            for way, content in damages(cut.image.content(node), losses[node], self.rules):
                image = cut.image.with_content({node: content})
                damage = f"{path}: {WAYS[way]}"
                yield Found(cut, image, f"{label}-{way}", way, label, damage, lasting=node in unsynced)
        if len(losses) > 1:
            yield from self._all_damaged(scene, cut, losses, unsynced)

    def _all_damaged(
        self, scene: Scene, cut: Cut, losses: Mapping[int, Loss], unsynced: set[int]
    ) -> Iterator[Found]:
        lasting = unsynced == losses.keys()
        fates = {node: fates_of(cut.image.content(node), loss) for node, loss in losses.items()}
        for way, at in (("all-lost", 0), ("all-half", 1)):
            image = cut.image.with_content({node: fate[at] for node, fate in fates.items()})
            yield Found(cut, image, way, way, damage=f"{WAYS[way]} ({len(losses)} files)", lasting=lasting)
        yield from self._newer_lost(scene, cut, fates, unsynced)
        if self.rules.size_first and _at_end(scene, cut):
            yield from self._on_their_way(scene, cut, losses, unsynced)

    def _newer_lost(
        self, scene: Scene, cut: Cut, fates: Mapping[int, tuple[Content, ...]], unsynced: set[int]
    ) -> Iterator[Found]:
        """Yield what is there when the kernel was on its way through the files: it takes the oldest first."""
        telling = set(_most_telling(scene, fates))
        nodes = list(fates)
        for at, node in enumerate(nodes[:-2]):  # only the newest file lost, or all: both are there already
            if node in telling:
                newer = nodes[at + 1 :]
                image = cut.image.with_content({other: fates[other][0] for other in newer})
                path, label = scene.path_of(cut.image, node), scene.label_of(node)
                damage = f"{path}: {WAYS['newer-lost']} ({len(newer)} files)"
                lasting = unsynced >= set(newer)
                yield Found(cut, image, f"{label}-newer-lost", "newer-lost", label, damage, lasting=lasting)

    def _on_their_way(
        self, scene: Scene, cut: Cut, losses: Mapping[int, Loss], unsynced: set[int]
    ) -> Iterator[Found]:
        """Yield what is there while data is being written back: older files whole, some in zeros, newer ones lost.

        Only for the end of a save, since the kernel lets data grow older than names before it begins.
        """
        nodes, telling = list(losses), set(_most_telling(scene, losses))
        places = [at for at, node in enumerate(nodes) if node in telling]
        for first, last in itertools.combinations_with_replacement(places, 2):
            contents = {
                node: in_zeros(cut.image.content(node), losses[node]) for node in nodes[first : last + 1]
            }
            contents |= {node: losses[node].lost for node in nodes[last + 1 :]}
            path, label = scene.path_of(cut.image, nodes[first]), scene.label_of(nodes[first])
            damage = f"{path}: {WAYS['zeros']}; so with {last - first} newer files, of {len(nodes) - last - 1} nothing"
            suffix = f"{label}-to-{scene.label_of(nodes[last])}-zeros"
            lasting = unsynced >= contents.keys()
            yield Found(
                cut, cut.image.with_content(contents), suffix, "zeros", label, damage, lasting=lasting
            )

    def bound(self, scene: Scene) -> tuple[int, str]:
        """At each moment every file in three ways or all newer ones, all files in two ways, and undamaged.

        Where sizes come first, every file in a fourth way, and at the end a range of files.
        """
        files = scene.runs
        if not self.rules.size_first:
            return _for_ranks(scene, scene.moments * (4 * files + 2), "m (4f + 2)")
        most = scene.moments * (5 * files + 2) + files * (files + 1) // 2
        return _for_ranks(scene, most, "m (5f + 2) + f (f + 1) / 2")


class PowerExt4(_PageCache):
    """Power loss on ext4 with its defaults (``data=ordered``, delayed allocation, ``auto_da_alloc``).

    Names and sizes reach the disk in the order of the journal; an fsync of anything forces all before it. Data that
    was written after a file's last fsync is there or not, file by file and page by page: the file is empty, or has its
    full length in zeros (truncate or fallocate set it, or it was committed while the data was on its way), or still has
    its old content. A rename over an existing name, and closing a file that was truncated and rewritten, write the data
    back first.
    Source: ext4 documentation of the kernel (``data=``, ``auto_da_alloc``); all of it was also observed on loop devices
    that were copied while mounted.
    """

    name: ClassVar[str] = "power-ext4"
    requires: ClassVar[str] = "the machine lost power or was reset; ext4"
    rules: ClassVar[Rules] = Rules(rename_over=True, rewrite_close=True, size_first=True)


class PowerXfs(_PageCache):
    """Power loss on xfs: as on ext4, but nothing except fsync writes data back before names.

    Source: observed on loop devices: a file renamed over another without fsync had 0 bytes 40 seconds later.
    """

    name: ClassVar[str] = "power-xfs"
    requires: ClassVar[str] = (
        "the machine lost power or was reset; xfs, or any file system with an ordered journal"
    )
    rules: ClassVar[Rules] = Rules()


class Nfs(_PageCache):
    """The client of a network file system is lost: names are on the server at once and in order, data by close.

    Only files that were neither closed nor synced may be short or empty. Source: close-to-open consistency of NFS,
    nfs(5).
    """

    name: ClassVar[str] = "nfs"
    requires: ClassVar[str] = "the machine was lost; the output folder is on NFS"
    rules: ClassVar[Rules] = Rules(names=Names.AT_ONCE, close=True)


class PosixWorst:
    """What POSIX allows at worst: any one name whose folder was not synced is lost, later ones are kept.

    On top of `PowerXfs`, whose states it does not repeat. Source: POSIX ``fsync``, which promises nothing about names;
    copy tools and object-backed file systems behave like this.
    """

    name: ClassVar[str] = "posix-worst"
    requires: ClassVar[str] = "the machine lost power; a storage without any order among names"
    rules: ClassVar[Rules] = Rules(names=Names.EACH)

    def states(self, scene: Scene) -> Iterator[Found]:
        """Yield each prefix, and each prefix without one of its unsynced changes of names."""
        end = _final_account(scene, self.rules)
        for cut, account in _accounts(scene, self.rules):
            lasting = _at_end(scene, cut)
            yield Found(cut, cut.image, lasting=lasting)
            if cut.changing:
                for effect in [name for name in account.names if name.kind in NAMES][-_most_at(scene) :]:
                    yield self._without(scene, cut, effect, lasting=lasting and effect in end.names)

    def _without(self, scene: Scene, cut: Cut, missing: Effect, *, lasting: bool) -> Found:
        image = scene.without(cut, missing)
        what = scene.described(missing)
        suffix = f"without-{scene.op_label(missing.index)}-{safe(missing.kind)}"
        label = scene.label_of(missing.node)
        return Found(cut, image, suffix, "lost", label, f"{what}: {WAYS['lost']}", lasting=lasting)

    def bound(self, scene: Scene) -> tuple[int, str]:
        """Pairs of a moment and a change of names up to it, or the moment alone."""
        return _for_ranks(scene, scene.moments * (scene.moments + 1) // 2, "m (m + 1) / 2")


MODELS: dict[str, Model] = {
    model.name: model for model in (Kill(), Nfs(), MachineLost(), PowerExt4(), PowerXfs(), PosixWorst())
}
"""All models by name, the weakest first."""

COMPOUND = "compound"
"""The model of a second interruption while the first one is being recovered from."""


def _accounts(scene: Scene, rules: Rules) -> Iterator[tuple[Cut, Account]]:
    """Yield every moment with what is not durable then."""
    running, reached = Account(rules), 0
    for cut in scene.cuts:
        if cut.done is None:
            for position in range(reached, cut.position):
                _enter(scene, running, position)
            reached = cut.position
            if cut.moment:
                yield cut, running
        else:
            account = Account(rules)
            for position in cut.done:
                _enter(scene, account, position)
            yield cut, account


def _enter(scene: Scene, account: Account, position: int) -> None:
    if scene.own[position]:
        account.enter(scene.effects[position], scene.before[position])


def _final_account(scene: Scene, rules: Rules) -> Account:
    account = Account(rules)
    for position in range(len(scene.effects)):
        _enter(scene, account, position)
    return account


def _at_end(scene: Scene, cut: Cut) -> bool:
    """Tell whether nothing of the save is missing at a cut."""
    if cut.done is not None:
        return len(cut.done) == len(scene.effects)
    rest = range(cut.position, len(scene.effects))
    return not any(scene.own[at] and scene.effects[at].kind in CHANGES for at in rest)


def _before(scene: Scene, cut: Cut) -> int:
    """Return the index of the window's last operation before the one that a cut ends with."""
    at = bisect.bisect_left(scene.window.operations, cut.after)
    return scene.window.operations[at - 1] if at else scene.window.first - 1


def _most_at(scene: Scene) -> int:
    return max(4, min(MOST_AT_ONCE, MOST_IN_ALL // scene.moments))


def _most_telling(scene: Scene, losses: Mapping[int, object]) -> list[int]:
    """Return the first and the newest files with unsynced data."""
    nodes, most = list(losses), _most_at(scene)
    return nodes if len(nodes) <= most else [*nodes[: most // 4], *nodes[most // 4 - most :]]


def _for_ranks(scene: Scene, most: int, formula: str) -> tuple[int, str]:
    """Widen a bound by every rank alone behind and alone ahead."""
    if scene.ranks == 1:
        return most, formula
    return most * (2 * scene.ranks + 1), f"({formula}) (2r + 1)"
