"""What the ranks tell each other before a snapshot: what they hold, and what of it is not the same everywhere."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import torch
import xxhash
from torch.distributed.tensor import DTensor

from samestep.bundle import canonical
from samestep.errors import SamestepError
from samestep.state import leaves
from samestep.state.errors import RankFailed
from samestep.state.planning import check_storable, structure
from samestep.state.writer import elements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.state.leaves import Encoded
    from samestep.state.ranks import Ranks
    from samestep.state.seam import Source
    from samestep.state.spelling import Speller

COMPARED_BYTES: Final = 64 << 10
"""Tensors up to this size are compared between ranks: counters and buffers, which each rank may have its own of."""

Named = tuple[str, str]


@dataclasses.dataclass(frozen=True)
class Agreed:
    """What there is to save.

    Attributes:
        states: of this rank, one for each tracked object.
        structures: a digest for each rank of what its plan depends on.
        trees: of each object; one, or one for every rank where they differ.
        own: object and key of tensors that are the same in name only: every rank has one of its own.
    """

    states: list[Encoded]
    structures: tuple[str, ...]
    trees: dict[str, list[Any]]
    own: frozenset[Named]


class Agreement:
    """Reads the state of tracked objects and compares notes with the other ranks.

    Args:
        sources: the tracked objects.
        ranks: that have to agree.
        speller: of this run's former saves.
    """

    def __init__(self, sources: Sequence[Source], ranks: Ranks, speller: Speller) -> None:
        self._sources, self._ranks, self._speller = sources, ranks, speller
        self._structure: list[Any] = []
        self._digest = ""

    def reach(self) -> Agreed:
        """Return what there is to save. Every rank must call.

        Raises:
            StateError: something cannot be stored; the message names it.
            RankFailed: that is so on another rank.
        """
        states: list[Encoded] = []
        said: dict[str, Any] = {}
        failed: Exception | None = None
        try:
            states = [self._read(source) for source in self._sources]
            said = self._notes(states)
        except Exception as error:
            if self._ranks.size == 1:
                raise
            failed = error
        told = exchanged(self._ranks, said, failed)
        structures = tuple(one["structure"] for one in told)
        return Agreed(states, structures, self._trees(states, told), self._own(states, told))

    def _read(self, source: Source) -> Encoded:
        state = leaves.encode(source.read(), at=source.name)
        check_storable(state.tensors, source.name)
        return state

    def _notes(self, states: Sequence[Encoded]) -> dict[str, Any]:
        """Return what this rank tells the others."""
        pairs = list(zip(self._sources, states, strict=True))
        found = [structure(source, state) for source, state in pairs]
        if found != self._structure:
            self._structure = found
            self._digest = _digest(repr(found).encode())
        if self._ranks.size == 1:
            return {"structure": self._digest}
        trees = {
            source.name: _digest(self._speller.spell(state.value, source.name)) for source, state in pairs
        }
        small = {
            source.name: _digest(repr(_small(state)).encode())
            for source, state in pairs
            if not source.per_rank
        }
        return {"structure": self._digest, "trees": trees, "small": small}

    def _trees(self, states: Sequence[Encoded], told: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
        trees = {source.name: [state.value] for source, state in zip(self._sources, states, strict=True)}
        differing = _differing(told, "trees") if len(told) > 1 else []
        if differing:
            own = canonical.encode({name: trees[name][0] for name in differing})
            every = [canonical.decode(data, what="the state of a rank") for data in self._ranks.exchange(own)]
            trees |= {name: [one[name] for one in every] for name in differing}
        return trees

    def _own(self, states: Sequence[Encoded], told: Sequence[dict[str, Any]]) -> frozenset[Named]:
        differing = _differing(told, "small") if len(told) > 1 else []
        if not differing:
            return frozenset()
        by_name = {source.name: state for source, state in zip(self._sources, states, strict=True)}
        notes = {name: _small(by_name[name]) for name in differing}
        every = [json.loads(data) for data in self._ranks.exchange(json.dumps(notes).encode())]
        return frozenset(
            (name, key)
            for name, digests in notes.items()
            for key, digest in digests.items()
            if any(one[name].get(key) != digest for one in every)
        )


def exchanged(ranks: Ranks, said: dict[str, Any], failed: Exception | None) -> list[dict[str, Any]]:
    """Tell the other ranks something, or that this one failed, and return what they say.

    Raises:
        Exception: ``failed``, or a ``RankFailed`` that names the ranks that did.
    """
    message = failed.message if isinstance(failed, SamestepError) else repr(failed)
    said = {**said, "failed": message if failed else ""}
    told = [json.loads(data) for data in ranks.exchange(json.dumps(said).encode())]
    if failed is not None:
        raise failed
    failures = [f"rank {rank}: {one['failed']}" for rank, one in enumerate(told) if one["failed"]]
    if failures:
        raise RankFailed("; ".join(failures[:3]), hint="the logs of these ranks say more")
    return told


def _differing(told: Sequence[dict[str, Any]], what: str) -> list[str]:
    """Return the objects of which not every rank says the same."""
    return [name for name in told[0][what] if len({one[what].get(name) for one in told}) > 1]


def _small(state: Encoded) -> dict[str, str]:
    """Return a digest of every small tensor that is not sharded and not trained."""
    return {
        key: xxhash.xxh3_128_hexdigest(elements(tensor))
        for key, tensor in state.tensors.items()
        if not isinstance(tensor, torch.nn.Parameter | DTensor) and tensor.nbytes <= COMPARED_BYTES
    }


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()
