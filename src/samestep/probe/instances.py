"""Remembers the optimizers, schedulers and loss scalers that a script makes, without keeping them alive."""

from __future__ import annotations

import functools
import weakref
from typing import Any


class Instances:
    """Instances of some classes and their subclasses, in order of creation."""

    def __init__(self) -> None:
        self._references: list[weakref.ref[Any]] = []
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()

    def watch(self, owner: type, *methods: str) -> None:
        """Remember every instance on which one of ``methods`` (``__init__``) of ``owner`` is called."""
        for method in methods:
            if method in vars(owner):
                setattr(owner, method, self._remembering(getattr(owner, method)))

    def remember(self, instance: Any) -> None:
        """Add an instance, once; one that cannot be hashed or weakly referenced is left out."""
        try:
            if instance not in self._known:
                self._known.add(instance)
                self._references.append(weakref.ref(instance))
        except TypeError:
            return

    def alive(self) -> list[Any]:
        """Return those that still exist."""
        self._references = [reference for reference in self._references if reference() is not None]
        return [instance for reference in self._references if (instance := reference()) is not None]

    def _remembering(self, original: Any) -> Any:
        @functools.wraps(original)
        def method(instance: Any, *args: Any, **keywords: Any) -> Any:
            self.remember(instance)
            return original(instance, *args, **keywords)

        return method
