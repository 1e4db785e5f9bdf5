"""Keeps the probe out of the training's way."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import Session


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of the session that hooks call: it never raises, is deaf to its own torch calls, and is timed."""

    @functools.wraps(method)
    def call(self: Session, *args: Any, **keywords: Any) -> Any:
        self.working = True
        self.stopwatch = time.perf_counter()
        try:
            return method(self, *args, **keywords)
        except Exception as error:
            self.not_followed(method.__name__.replace("_", " "), error)
            return None
        finally:
            self.spent += time.perf_counter() - self.stopwatch
            self.working = False

    return call
