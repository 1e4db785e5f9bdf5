"""The ranks of a training, over a gloo group of their own that gives up on a silent one in bounded time."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from samestep.state.errors import RankFailed
from samestep.state.ranks import Alone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samestep.state.ranks import Ranks

LIMIT_SECONDS = 60.0
"""How long a rank waits for the others within a save or a restore."""

_STEP_LIMIT_SECONDS = 7 * 24 * 3600.0


class GlooRanks:
    """All ranks of the default group, exchanging bytes over a gloo group that nobody else uses.

    Every rank must make it at the same point, and call its methods in the same order and from one thread at a time.

    Args:
        limit_seconds: how long a rank waits for the others.

    Attributes:
        silent: another rank has not answered; it is gone, hangs, or is stopped.
    """

    def __init__(self, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self.rank = distributed.get_rank()
        self.size = distributed.get_world_size()
        self.silent = False
        self._limit_seconds = limit_seconds
        self._group = distributed.new_group(
            backend="gloo", timeout=dt.timedelta(seconds=limit_seconds), group_desc="samestep"
        )

    def exchange(self, data: bytes) -> list[bytes]:
        """Give ``data`` to every rank and return what each of them gave, by rank.

        Raises:
            RankFailed: a rank did not answer within the limit, or is gone.
        """
        try:
            return self._exchange(data)
        except RuntimeError as error:
            self.silent = True
            raise RankFailed(
                f"rank {self.rank} of {self.size} heard nothing from another rank for "
                f"{self._limit_seconds:g} seconds, or its connection broke",
                hint="look at the logs of the other ranks: one has ended, hangs or is stopped",
            ) from error

    def barrier(self) -> None:
        """Return when every rank has called."""
        self.exchange(b"")

    def _exchange(self, data: bytes) -> list[bytes]:
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(sizes, torch.tensor([len(data)]), group=self._group)
        longest = max(int(size) for size in sizes)
        if longest == 0:
            return [b""] * self.size
        own = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8)
        every = [torch.empty(longest, dtype=torch.uint8) for _ in range(self.size)]
        distributed.all_gather(every, own, group=self._group)
        return [bytes(got[: int(size)].numpy()) for got, size in zip(every, sizes, strict=True)]


class Agreement:
    """Lets ranks agree on what some of them noticed, without waiting for each other at every step.

    What is proposed at one boundary is agreed on at the next: by then every rank has long answered.
    """

    def __init__(self) -> None:
        self._group = distributed.new_group(
            backend="gloo",
            timeout=dt.timedelta(seconds=_STEP_LIMIT_SECONDS),
            group_desc="samestep steps",
        )
        self._flying: tuple[Any, torch.Tensor] | None = None
        self._settled: set[int] = set()

    def propose(self, flags: Sequence[bool]) -> list[bool]:
        """Propose ``flags`` and return those that any rank proposed at the boundary before.

        Raises:
            RankFailed: a rank is gone.
        """
        try:
            agreed = self._landed(len(flags))
            mine = torch.tensor(list(flags), dtype=torch.int64)
            work = distributed.all_reduce(mine, distributed.ReduceOp.MAX, group=self._group, async_op=True)
        except RuntimeError as error:
            raise RankFailed("another rank has left the training", hint="look at its log") from error
        self._flying = (work, mine)
        return agreed

    def _landed(self, count: int) -> list[bool]:
        settled, self._settled = self._settled, set()
        if self._flying is None:
            return [False] * count
        work, flags = self._flying
        work.wait()
        return [bool(flag) and at not in settled for at, flag in enumerate(flags)]

    def settle(self, flag: int) -> None:
        """Let what was proposed for the flag of this number at the last boundary be done with; every rank must call."""
        self._settled.add(flag)


class AgreementOfOne:
    """What one process proposes is agreed on at once."""

    def propose(self, flags: Sequence[bool]) -> list[bool]:
        """Return ``flags``."""
        return list(flags)

    def settle(self, flag: int) -> None:
        """Do nothing: nothing is under way."""


def is_distributed() -> bool:
    """Say whether this process is one of several ranks."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def join(limit_seconds: float) -> Ranks:
    """Return the ranks of this training; every rank must call at the same point."""
    return GlooRanks(limit_seconds=limit_seconds) if is_distributed() else Alone()


def agreement() -> Agreement | AgreementOfOne:
    """Return how the ranks of this training agree; every rank must call at the same point."""
    return Agreement() if is_distributed() else AgreementOfOne()


def from_first(ranks: Ranks, make: Callable[[], Any]) -> Any:
    """Return on every rank what ``make`` returns on the first: values that JSON can hold.

    Raises:
        RankFailed: it failed there; the first rank raises the error itself.
    """
    made: Any = None
    error: BaseException | None = None
    if ranks.rank == 0:
        try:
            made = make()
        except Exception as failure:  # noqa: BLE001 - raised below, when the others know
            error = failure
    said = {"made": made, "error": str(error) if error else ""}
    first = json.loads(ranks.exchange(json.dumps(said if ranks.rank == 0 else None).encode())[0])
    if error is not None:
        raise error
    if first["error"]:
        raise RankFailed(f"rank 0: {first['error']}", hint="its log says more")
    return first["made"]


def all_succeeded(ranks: Ranks, problem: str) -> None:
    """Return when no rank has a problem.

    Args:
        ranks: of the training.
        problem: of this one; empty if there is none.

    Raises:
        RankFailed: one has; the message names it.
    """
    said = [text.decode("utf-8", "replace") for text in ranks.exchange(problem.encode())]
    found = [f"rank {rank}: {text}" for rank, text in enumerate(said) if text]
    if found:
        raise RankFailed("; ".join(found[:3]), hint="the logs of these ranks say more")
