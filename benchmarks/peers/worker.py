"""One peer in a process of its own, with a live state, doing what it is told line by line.

    python -m peers.worker PEER THREADS FOLDER

It reads orders from standard input, ``begin WORKLOAD SCALE``, ``save``, ``restore`` or ``end``, and answers each
but the last with one JSON line. A peer never sees another one's threads, memory or imports, and all of them take
turns on the same disk.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from peers import measuring
from peers.states import WORKLOADS, filled

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = "samestep"
DISK = "the disk itself"


def main() -> None:
    """Answer orders until the end."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a peer prints goes where errors go
    peer, threads, folder = sys.argv[1:]
    worker = _Worker(peer, int(threads), Path(folder))
    for line in sys.stdin:
        order, *details = line.split()
        if order == "end":
            return
        orders: dict[str, Callable[..., dict[str, Any]]] = {
            "begin": worker.begin,
            "save": worker.save,
            "restore": worker.restore,
        }
        _answer(replies, orders[order], details)


def _answer(replies: TextIO, act: Callable[..., dict[str, Any]], details: list[str]) -> None:
    try:
        answer = act(*details)
    except Exception as error:  # noqa: BLE001 - whatever a peer raises is its result
        traceback.print_exc()
        text = str(error).strip().splitlines() or [""]
        answer = {"failed": f"{type(error).__name__}: {text[0][:200]}"}
    replies.write(json.dumps(answer) + "\n")


class _Worker:
    def __init__(self, peer: str, threads: int, folder: Path) -> None:
        self._peer, self._threads, self._above = peer, threads, folder
        self._saves = 0
        self._way: Any = None

    def begin(self, workload: str, scale: str) -> dict[str, Any]:
        """Make the live state of a workload, and say what is measured here."""
        self._way = None  # the memory of the state before goes first
        self._folder = self._above / workload
        self._folder.mkdir()
        self._saves = 0
        _pin_threads(self._peer, self._threads)
        self._way = _way(self._peer)(filled(WORKLOADS[workload](float(scale))))
        if self._peer == OURS:
            self._way.prepare(self._folder)
        self._way.train()
        sizes = [array.nbytes for array in self._way.arrays()]
        return {"version": _version(self._peer), "state_bytes": sum(sizes), "tensors": len(sizes)}

    def save(self) -> dict[str, Any]:
        """Save the state after another training step, over a clean place; then do what makes it equal to ours."""
        if self._saves:
            self._way.clean(self._place)
        self._saves += 1
        self._way.train()
        os.sync()
        cost = measuring.cost_of(lambda: self._way.save(self._place))
        if self._peer not in {OURS, DISK}:
            cost.sync = measuring.seconds_of(lambda: measuring.sync_tree(self._place))
            cost.digest = measuring.seconds_of(lambda: measuring.digest_tree(self._place))
        return dataclasses.asdict(cost)

    def restore(self) -> dict[str, Any]:
        """Restore from the disk what was saved last; then do what makes it equal to ours."""
        saved = self._state_digest()
        self._way.forget()
        measuring.make_cold(self._folder)
        cost = measuring.cost_of(lambda: self._way.restore(self._place))
        if self._state_digest() != saved:
            raise ValueError("what was restored is not what was saved")
        if self._peer != OURS:
            cost.digest = measuring.seconds_of(lambda: measuring.digest_tree(self._place))
        return dataclasses.asdict(cost)

    @property
    def _place(self) -> Path:
        return self._folder / f"save-{self._saves}"

    def _state_digest(self) -> str:
        import xxhash

        digest = xxhash.xxh3_128()
        for array in self._way.arrays():
            digest.update(array.reshape(-1).view("uint8"))
        return digest.hexdigest()


def _pin_threads(peer: str, threads: int) -> None:
    if peer != "Orbax":
        import torch

        torch.set_num_threads(threads)


def _way(peer: str) -> Any:
    if peer in {OURS, DISK}:
        from peers.ours import Disk, Samestep

        return Samestep if peer == OURS else Disk
    from peers.ways import PEERS

    return PEERS[peer][0]


def _version(peer: str) -> str:
    if peer in {OURS, DISK}:
        from importlib.metadata import version

        return f"samestep {version('samestep')}"
    from peers.ways import version_of

    return version_of(peer)


if __name__ == "__main__":
    main()
