"""Processes of tests are forked from one, for each worker of pytest, that has loaded what takes long to load.

What it loads is settled by whoever starts the first of them, so all tests have to ask here.
"""

from __future__ import annotations

import multiprocessing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LOADED = [
    *("pytest", "msgspec", "obstore.store", "samestep.bundle.store", "samestep.run", "samestep.data"),
    *("torch.distributed.fsdp", "torch._dynamo"),  # the latter is loaded with the first optimizer
]

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(LOADED)


def process(target: Callable[..., Any], *arguments: Any) -> multiprocessing.process.BaseProcess:
    """Return a process, not yet started, that begins as if it had been started on its own."""
    return context.Process(target=_begun, args=(target, *arguments))


def _begun(target: Callable[..., Any], *arguments: Any) -> None:
    # Else its loader workers come from a fork server again, which outlives a training that is killed.
    multiprocessing.set_start_method(None, force=True)
    target(*arguments)
