"""Reading pickles without unpickling them.

The opcodes are decoded by :mod:`pickletools` and interpreted on a stack of inert values: containers and
plain values become themselves, everything else becomes a record of what unpickling *would* do. Nothing is
imported and nothing is called. Sources: :mod:`pickletools` on the
opcodes, and PEP 307, 3154 and 574.
"""

from __future__ import annotations

import io
import pickletools
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, cast

from .trust import Trust, trust
from .values import Built, Global, Storage

if TYPE_CHECKING:
    from collections.abc import Callable

MAX_OPCODES = 3_000_000
"""Opcodes read from one pickle; a checkpoint's own description is a thousandth of that."""

MAX_READ_BYTES = 64 * 1024
"""Longest single value read into memory; longer ones are stepped over."""

_MAX_LINE_BYTES = 4096
_MAX_EMBEDDED_DEPTH = 3
_LEGACY_PICKLES = (
    5  # torch's format before zip: a magic number, its version, the system, the object, storage keys
)


@dataclass
class PickleScan:
    """What a pickle says.

    Attributes:
        value: the described value, with inert records in place of objects.
        globals: every class or function it names, in order.
        oddities: opcodes that no checkpoint writer uses and that hide what is loaded.
        problem: why it could not be read to its end; empty when it could.
    """

    value: Any = None
    globals: list[Global] = field(default_factory=list)
    oddities: list[str] = field(default_factory=list)
    problem: str = ""

    def names(self, level: Trust) -> list[str]:
        """Return the names of one level of trust, each once."""
        return list(dict.fromkeys(str(name) for name in self.globals if trust(name) is level))


class _StepsOver(bytes):
    """Stands for bytes that were stepped over; knows where they begin and how many they are."""

    start: int
    declared: int

    def __len__(self) -> int:
        return self.declared


class _BoundedFile:
    """A binary file that never reads a long value into memory."""

    def __init__(self, raw: IO[bytes], size_bytes: int) -> None:
        self._raw = raw
        self._end = size_bytes

    def read(self, count: int) -> bytes:
        if count <= MAX_READ_BYTES:
            return self._raw.read(count)
        if self._raw.tell() + count > self._end:
            return b""
        self._raw.seek(count, 1)
        skipped = _StepsOver()
        skipped.start, skipped.declared = self._raw.tell() - count, count
        return skipped

    def readline(self) -> bytes:
        return self._raw.readline(_MAX_LINE_BYTES)

    def tell(self) -> int:
        return self._raw.tell()


def scan_pickle(raw: IO[bytes], size_bytes: int) -> PickleScan:
    """Read one pickle from ``raw``, which is left right behind its end.

    Args:
        raw: a seekable binary file, positioned at the pickle.
        size_bytes: where the file ends, measured from its start.
    """
    return _scan(raw, size_bytes, _MAX_EMBEDDED_DEPTH)


def _scan(raw: IO[bytes], size_bytes: int, depth: int) -> PickleScan:
    machine = _Machine()
    bounded = cast("IO[bytes]", _BoundedFile(raw, size_bytes))
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(bounded)):
            if count >= MAX_OPCODES:
                machine.scan.problem = f"only its first {MAX_OPCODES} instructions were read"
                break
            machine.execute(opcode.name, argument)
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, EOFError) as error:
        machine.scan.problem = f"not a whole pickle ({_first_line(error)})"
    end = raw.tell()
    for data in machine.embedded:
        _scan_embedded(machine.scan, raw, data, depth - 1)
    raw.seek(end)
    return machine.scan


def _scan_embedded(scan: PickleScan, raw: IO[bytes], data: object, depth: int) -> None:
    """Read the torch file that unpickling would open from bytes inside the pickle."""
    if not isinstance(data, bytes) or depth < 0:
        scan.oddities.append("an embedded torch file that cannot be looked into")
        return
    inner: IO[bytes] = raw if isinstance(data, _StepsOver) else io.BytesIO(data)
    start = data.start if isinstance(data, _StepsOver) else 0
    inner.seek(start)
    if inner.read(2) == b"PK":
        scan.oddities.append("an embedded torch archive, which is not looked into")
    inner.seek(start)
    for _ in range(_LEGACY_PICKLES):
        found = _scan(inner, start + len(data), depth)
        scan.globals += found.globals
        scan.oddities += found.oddities
        if found.problem:
            return


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]


class _Mark:
    """Separates the arguments of a container instruction from what lies below."""


_MARK = _Mark()
_CONSTANTS: dict[str, object] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], object]] = {
    "EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set, "EMPTY_TUPLE": tuple,
}  # fmt: skip
_IGNORED = frozenset({"PROTO", "FRAME", "READONLY_BUFFER"})
_DICT_MAKERS = frozenset({
    "collections.OrderedDict", "collections.defaultdict", "collections.Counter", "builtins.dict",
})  # fmt: skip


class _Machine:
    """The pickle machine with every instruction that would run code replaced by one that takes a note."""

    def __init__(self) -> None:
        self.scan = PickleScan()
        self.embedded: list[object] = []
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def execute(self, name: str, argument: Any) -> None:
        if name in _IGNORED:
            return
        if name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self._stack.append(_EMPTY[name]())
        elif (action := getattr(self, f"_do_{name.lower()}", None)) is not None:
            action(argument)
        else:
            self._stack.append(argument)

    def _above_mark(self) -> list[Any]:
        position = len(self._stack) - 1
        while not isinstance(self._stack[position], _Mark):
            position -= 1
            if position < 0:
                raise ValueError("a container without a beginning")
        items = self._stack[position + 1 :]
        del self._stack[position:]
        return items

    def _do_mark(self, _: object) -> None:
        self._stack.append(_MARK)

    def _do_pop(self, _: object) -> None:
        self._stack.pop()

    def _do_pop_mark(self, _: object) -> None:
        self._above_mark()

    def _do_dup(self, _: object) -> None:
        self._stack.append(self._stack[-1])

    def _do_stop(self, _: object) -> None:
        self.scan.value = self._stack.pop()

    def _do_list(self, _: object) -> None:
        self._stack.append(self._above_mark())

    def _do_tuple(self, _: object) -> None:
        self._stack.append(tuple(self._above_mark()))

    def _do_dict(self, _: object) -> None:
        target: dict[object, object] = {}
        _set_pairs(target, self._above_mark())
        self._stack.append(target)

    def _do_frozenset(self, _: object) -> None:
        self._stack.append(tuple(self._above_mark()))

    def _do_tuple1(self, _: object) -> None:
        self._pack(1)

    def _do_tuple2(self, _: object) -> None:
        self._pack(2)

    def _do_tuple3(self, _: object) -> None:
        self._pack(3)

    def _pack(self, count: int) -> None:
        if len(self._stack) < count:
            raise ValueError("too few values for a tuple")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def _do_append(self, _: object) -> None:
        item = self._stack.pop()
        _extend(self._stack[-1], [item])

    def _do_appends(self, _: object) -> None:
        items = self._above_mark()
        _extend(self._stack[-1], items)

    def _do_additems(self, _: object) -> None:
        items = self._above_mark()
        _extend(self._stack[-1], items)

    def _do_setitem(self, _: object) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        _set_pairs(self._stack[-1], [key, value])

    def _do_setitems(self, _: object) -> None:
        items = self._above_mark()
        _set_pairs(self._stack[-1], items)

    def _do_put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    _do_binput = _do_long_binput = _do_put

    def _do_memoize(self, _: object) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _do_get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    _do_binget = _do_long_binget = _do_get

    def _do_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._name(module, name)

    def _do_stack_global(self, _: object) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if isinstance(name, str) and isinstance(module, str):
            self._name(module, name)
        else:
            self.scan.oddities.append("a name put together while loading (STACK_GLOBAL)")
            self._stack.append(Built(None))

    def _name(self, module: str, name: str) -> None:
        found = Global(module, name)
        self.scan.globals.append(found)
        self._stack.append(found)

    def _do_inst(self, argument: str) -> None:
        arguments = tuple(self._above_mark())
        self._do_global(argument)
        self._stack.append(_built(self._stack.pop(), arguments))

    def _do_obj(self, _: object) -> None:
        maker, *arguments = self._above_mark()
        self._stack.append(_built(maker, tuple(arguments)))

    def _do_reduce(self, _: object) -> None:
        arguments, maker = self._stack.pop(), self._stack.pop()
        if str(maker) == "torch.storage._load_from_bytes":
            self.embedded.append(arguments[0] if isinstance(arguments, tuple) and arguments else None)
        self._stack.append(_built(maker, arguments))

    _do_newobj = _do_reduce

    def _do_newobj_ex(self, _: object) -> None:
        named, arguments, maker = self._stack.pop(), self._stack.pop(), self._stack.pop()
        self._stack.append(Built(maker, arguments, state=named))

    def _do_build(self, _: object) -> None:
        state = self._stack.pop()
        if isinstance(self._stack[-1], Built):
            self._stack[-1].state = state

    def _do_persid(self, argument: object) -> None:
        self._stack.append(_storage(argument))

    def _do_binpersid(self, _: object) -> None:
        self._stack.append(_storage(self._stack.pop()))

    def _do_ext1(self, argument: object) -> None:
        self.scan.oddities.append(f"a name from the registry of extensions (EXT {argument})")
        self._stack.append(Built(None))

    _do_ext2 = _do_ext4 = _do_ext1

    def _do_next_buffer(self, _: object) -> None:
        self._stack.append(Built(None))


def _built(maker: object, arguments: object) -> object:
    name = str(maker) if isinstance(maker, Global) else ""
    if name in _DICT_MAKERS:
        target: dict[object, object] = {}
        for pair in arguments[0] if isinstance(arguments, tuple) and _is_pairs(arguments) else ():
            _set_pairs(target, list(pair))
        return target
    if name == "torch.Size" and isinstance(arguments, tuple) and arguments:
        return arguments[0]
    return Built(maker, arguments)


def _is_pairs(arguments: tuple[Any, ...]) -> bool:
    first = arguments[0] if arguments else None
    return isinstance(first, list) and all(isinstance(pair, list | tuple) for pair in first)


def _extend(target: object, items: list[object]) -> None:
    if isinstance(target, list):
        target.extend(items)
    elif isinstance(target, set):
        target.update(_key(item) for item in items)
    elif isinstance(target, Built):
        target.items.extend(items)


def _set_pairs(target: object, items: list[Any]) -> None:
    if isinstance(target, dict):
        target.update(zip((_key(key) for key in items[::2]), items[1::2], strict=True))
    elif isinstance(target, Built):
        target.items.extend(items)


def _key(value: object) -> object:
    """Return a key that is safe to hash: nested tuples of a hostile pickle are not."""
    if value is None or isinstance(value, str | int | float | bytes | Global | Built):
        return value
    if isinstance(value, tuple) and all(isinstance(part, str | int) for part in value):
        return value
    return Built(None, value)


def _storage(identity: object) -> object:
    """Return the storage that torch's persistent id ``('storage', class, key, place, elements)`` names."""
    match identity:
        case ("storage", Global() as kind, str(key), _, int(elements), *_):
            return Storage(key, kind.name, elements)
        case ("storage", (Global() as kind, *_), str(key), _, int(elements), *_):
            return Storage(key, kind.name, elements)
    return Built(None, identity)
