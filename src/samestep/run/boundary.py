"""When a step is finished: an optimizer was called, or a scaler looked at the gradients and let it skip."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Boundary:
    """Counts the updates of some optimizers, and keeps the next one waiting while somebody still reads the state.

    Without any optimizer every call of ``passed`` is a boundary.

    Args:
        optimizers: the tracked ones.
        scalers: the tracked ones; an update that a scaler skips is a finished one, too.
    """

    def __init__(self, optimizers: Iterable[Any], scalers: Iterable[Any] = ()) -> None:
        self._updates = 0
        self._guard: Callable[[], None] | None = None
        self._undo = contextlib.ExitStack()
        watched = [_innermost(optimizer) for optimizer in optimizers]
        self._counts = bool(watched)
        for optimizer in watched:
            self._watch_optimizer(optimizer)
        for scaler in scalers:
            self._wrap(scaler, "step", after=self._updated)

    def passed(self) -> bool:
        """Return whether a step was finished since the last call."""
        finished = self._updates > 0 or not self._counts
        self._updates = 0
        return finished

    @property
    def pending(self) -> bool:
        """Whether an update was made since ``passed`` was called."""
        return self._updates > 0

    def guard(self, wait: Callable[[], None] | None) -> None:
        """Call ``wait`` once, right before the next update of an optimizer."""
        self._guard = wait

    def close(self) -> None:
        """Leave the optimizers and scalers as they were."""
        self._undo.close()

    def _updated(self) -> None:
        self._updates += 1

    def _updating(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            guard()

    def _watch_optimizer(self, optimizer: Any) -> None:
        if not hasattr(optimizer, "_optimizer_step_post_hooks"):
            self._wrap(optimizer, "step", before=self._updating, after=self._updated)
            return
        before = optimizer.register_step_pre_hook(lambda *_: self._updating())
        after = optimizer.register_step_post_hook(lambda *_: self._updated())
        self._undo.callback(before.remove)
        self._undo.callback(after.remove)

    def _wrap(
        self, thing: Any, name: str, *, before: Callable[[], None] | None = None, after: Callable[[], None]
    ) -> None:
        original = getattr(thing, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            if before is not None:
                before()
            result = original(*args, **kwargs)
            after()
            return result

        setattr(thing, name, watched)
        self._undo.callback(delattr, thing, name)


def _innermost(optimizer: Any) -> Any:
    """Return the optimizer inside a wrapper that only passes calls on."""
    inner = getattr(optimizer, "optimizer", None)
    is_wrapper = inner is not None and not hasattr(optimizer, "_optimizer_step_post_hooks")
    return _innermost(inner) if is_wrapper and hasattr(inner, "step") else optimizer
