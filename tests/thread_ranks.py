"""Ranks that are threads of one process: cheap, and their failures can be arranged."""

from __future__ import annotations

import concurrent.futures
import threading


class ThreadRanks:
    def __init__(self, rank, size, board, meeting):
        self.rank, self.size = rank, size
        self._board, self._meeting = board, meeting

    def exchange(self, data):
        self._board[self.rank] = data
        self._meeting.wait()
        every = list(self._board)
        self._meeting.wait()
        return every

    def barrier(self):
        self._meeting.wait()


def together(size, work):
    """Run ``work(ranks)`` on every rank; return what each returned or raised."""
    board, meeting = [b""] * size, threading.Barrier(size, timeout=30)
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(work, ThreadRanks(rank, size, board, meeting)) for rank in range(size)]
    return [future.exception() or future.result() for future in futures]
