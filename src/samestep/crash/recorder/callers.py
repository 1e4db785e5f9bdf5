"""Who makes the calls: processes by thread, their ranks, and what they hold open for writing."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field

from samestep.crash.recorder.paths import Key, key_of

RANK_VARIABLES = (b"RANK", b"SLURM_PROCID", b"OMPI_COMM_WORLD_RANK", b"PMI_RANK")


@dataclass(slots=True)
class Held:
    """A file that a process holds open for writing, and the descriptors it was last seen at."""

    key: Key
    numbers: set[int]


@dataclass(slots=True)
class Caller:
    """A process of the tree.

    Attributes:
        pid: process.
        birth: when it was started, in the kernel's ticks.
        rank: its rank where known.
        obstacle: why nothing can be done on its behalf; empty: it can.
        stale: it became another program, so rank and obstacle must be found again.
        held: files it holds open for writing, by recording-wide number.
    """

    pid: int
    birth: bytes
    rank: int | None = None
    obstacle: str = ""
    stale: bool = True
    held: dict[int, Held] = field(default_factory=dict)

    def hold(self, inode: int, key: Key, number: int) -> None:
        """Remember that it holds a file open for writing."""
        found = self.held.get(inode)
        if found is None:
            self.held[inode] = Held(key, {number})
        else:
            found.numbers.add(number)

    def let_go(self) -> list[tuple[int, Held]]:
        """Return, and forget, the files that it does not hold open for writing any more."""
        gone = [(inode, held) for inode, held in self.held.items() if not self._still_holds(held)]
        for inode, _ in gone:
            del self.held[inode]
        return gone

    def _still_holds(self, held: Held) -> bool:
        if any(self._is_at(held.key, number) for number in held.numbers):
            return True
        held.numbers = set(self._writable_descriptors(held.key))
        return bool(held.numbers)

    def _is_at(self, key: Key, number: int) -> bool:
        try:
            return key_of(os.stat(b"/proc/%d/fd/%d" % (self.pid, number))) == key
        except OSError:
            return False

    def _writable_descriptors(self, key: Key) -> list[int]:
        """Look through all descriptors: it may have been duplicated before it was closed."""
        try:
            numbers = [int(name) for name in os.listdir(f"/proc/{self.pid}/fd")]
        except OSError:
            return []
        return [number for number in numbers if self._is_at(key, number) and self._writes(number)]

    def _writes(self, number: int) -> bool:
        with contextlib.suppress(OSError), open(f"/proc/{self.pid}/fdinfo/{number}", "rb") as file:
            return bool(int(file.read(256).split(None, 4)[3], 8) & os.O_ACCMODE)
        return False


class Callers:
    """All processes that were seen so far."""

    def __init__(self) -> None:
        self._threads: dict[int, tuple[int, Caller]] = {}
        self._processes: dict[int, Caller] = {}
        self._world = _world("self")
        self._ids = os.geteuid(), os.getegid()

    def find(self, tid: int) -> Caller:
        """Return the process of a thread.

        Raises:
            OSError: it is gone.
        """
        stamp = os.stat(f"/proc/{tid}").st_ino
        known = self._threads.get(tid)
        if known is None or known[0] != stamp:
            known = stamp, self._process(int(facts(tid)["Tgid"]))
            self._threads[tid] = known
        caller = known[1]
        if caller.stale:
            self._examine(caller)
        return caller

    def known(self, tid: int) -> Caller | None:
        """Return the process of a thread if it was seen before."""
        found = self._threads.get(tid)
        return found[1] if found else self._processes.get(tid)

    def everyone(self) -> list[Caller]:
        """Return all processes that have not been forgotten."""
        return list(self._processes.values())

    def forget(self, caller: Caller) -> None:
        """Drop a process that ends."""
        self._processes.pop(caller.pid, None)
        for tid in [tid for tid, (_, owner) in self._threads.items() if owner is caller]:
            del self._threads[tid]

    def _process(self, pid: int) -> Caller:
        """Return the known process, or a new one: numbers are used again after long runs."""
        with open(f"/proc/{pid}/stat", "rb") as file:
            birth = file.read().rpartition(b")")[2].split()[19]
        caller = self._processes.get(pid)
        if caller is None or caller.birth != birth:
            caller = self._processes[pid] = Caller(pid, birth)
        return caller

    def _examine(self, caller: Caller) -> None:
        caller.rank = _rank(caller.pid)
        caller.obstacle = self._obstacle(caller.pid)
        caller.stale = False

    def _obstacle(self, pid: int) -> str:
        found = facts(pid)
        if (int(found["Uid"].split()[3]), int(found["Gid"].split()[3])) != self._ids:
            return "runs as another user"
        return "" if _world(str(pid)) == self._world else "sees other mounts or another root folder"


def facts(tid: int) -> dict[str, str]:
    """Return the fields of ``/proc/TID/status``.

    Raises:
        OSError: the thread is gone.
    """
    with open(f"/proc/{tid}/status", encoding="utf-8", errors="replace") as file:
        return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)


def _world(pid: str) -> tuple[Key, Key]:
    """Return what identifies the mounts and the root folder that a process sees."""
    return key_of(os.stat(f"/proc/{pid}/ns/mnt")), key_of(os.stat(f"/proc/{pid}/root/."))


def _rank(pid: int) -> int | None:
    with open(f"/proc/{pid}/environ", "rb") as file:
        entries = dict(entry.partition(b"=")[::2] for entry in file.read().split(b"\0"))
    ranks = (entries.get(name, b"") for name in RANK_VARIABLES)
    return next((int(rank) for rank in ranks if rank.isdigit()), None)
