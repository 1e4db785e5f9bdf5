"""What a pickle describes, as plain values and inert records: nothing here can run the pickle's code."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_DEPTH = 12
"""Nesting below which nothing about a checkpoint's meaning is looked for."""

MAX_VISITED = 200_000
"""Values looked at in one walk: shared references can make a small pickle look endless."""

_TENSOR_BUILDERS = frozenset(
    {
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_tensor_v3",
        "_rebuild_sparse_tensor",
        "_rebuild_qtensor",
        "_rebuild_meta_tensor_no_storage",
        "_rebuild_wrapper_subclass",
        "_rebuild_from_type_v2",
        "_rebuild_parameter",
        "_rebuild_parameter_with_state",
        "_rebuild_device_tensor_from_numpy",
        "_rebuild_device_tensor_from_cpu_tensor",
        "_reconstruct",
    }
)


@dataclass(frozen=True)
class Global:
    """A class or function that a pickle names; it is never imported."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False)
class Built:
    """An object that unpickling would build by calling ``maker``; it is never built.

    Attributes:
        maker: what would be called: a Global, or whatever else the pickle put there.
        arguments: what it would be called with.
        state: what would be set on the result afterwards.
        items: what would be appended or set on the result.
    """

    maker: object
    arguments: object = ()
    state: Any = None
    items: list[object] = field(default_factory=list)

    @property
    def type_name(self) -> str:
        """Return the dotted name of the maker; of the class where a generic copier makes it."""
        if str(self.maker) in _GENERIC_MAKERS and isinstance(self.arguments, tuple) and self.arguments:
            return str(self.arguments[0])
        return str(self.maker)


_GENERIC_MAKERS = frozenset({"copyreg._reconstructor", "copy_reg._reconstructor", "copyreg.__newobj__"})


@dataclass(frozen=True)
class Storage:
    """A tensor's bytes, kept outside the pickle.

    Attributes:
        key: its name inside the file.
        kind: the storage class, such as ``FloatStorage``.
        elements: how many elements it holds.
    """

    key: str
    kind: str
    elements: int


def is_tensor(value: object) -> bool:
    """Tell whether unpickling ``value`` would give a tensor or an array."""
    return (
        isinstance(value, Built) and isinstance(value.maker, Global) and value.maker.name in _TENSOR_BUILDERS
    )


def children(value: object) -> Iterator[object]:
    """Yield the values directly inside ``value``."""
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple | set):
        yield from value
    elif isinstance(value, Built):
        yield value.arguments
        yield value.state
        yield from value.items


def walk(value: object, depth: int = MAX_DEPTH) -> Iterator[object]:
    """Yield ``value`` and everything inside it once, down to ``depth`` levels."""
    seen: set[int] = set()
    level = [value]
    for _ in range(depth):
        following: list[object] = []
        for item in level:
            if id(item) in seen:
                continue
            seen.add(id(item))
            yield item
            if len(seen) >= MAX_VISITED:
                return
            following.extend(children(item))
        level = following


def count_tensors(value: object) -> int:
    """Return how many tensors or arrays ``value`` holds."""
    return sum(1 for item in walk(value) if is_tensor(item))
