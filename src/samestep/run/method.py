"""What a run is made by: described before anything is restored, compared when it is resumed.

An interrupted run may only go on as it was. What is described here is what the script makes, not what training has
made of it since, so that two fresh starts of one script are described alike.
"""

from __future__ import annotations

import functools
import hashlib
import math
from typing import TYPE_CHECKING, Any

from .errors import MethodChanged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import CodeType

_RUNNING = frozenset({"_step_count", "last_epoch", "_last_lr", "_get_lr_called_within_step", "verbose"})
_LONGEST = 64


def describe(components: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
    """Return what the tracked objects are made of, as plain values.

    Args:
        components: by name, the component that an object belongs to, and the object.
    """
    found: dict[str, Any] = {}
    for name, (component, thing) in components.items():
        if component == "optimizer":
            found[name] = _optimizer(thing)
        elif component in ("schedule", "scaler"):
            found[name] = {"kind": kind_of(thing), **_settings(thing)}
        else:
            found[name] = {"kind": kind_of(thing)}
    return found


def kind_of(thing: Any) -> str:
    """Return the class of ``thing`` as a person writes it."""
    return f"{type(thing).__module__.partition('.')[0]}.{type(thing).__qualname__}"


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Return what has changed, a line for each."""
    return list(_differences("", before, now))


def require_same(before: Mapping[str, Any], now: Mapping[str, Any], bundle: str) -> None:
    """Refuse to go on with a changed method under the name of resuming.

    Raises:
        MethodChanged: the message says what has changed.
    """
    changed = differences(before, now)
    if changed:
        raise MethodChanged(
            f"this is not the run that {bundle} belongs to: " + "; ".join(changed),
            hint="put back what was changed to resume it, or begin another run from its weights: "
            "samestep.new_run(root, from_=..., because=...)",
        )


def _differences(path: str, before: Any, now: Any) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in dict.fromkeys([*before, *now]):
            inner = f"{path}.{key}" if path else str(key)
            if key not in now:
                yield f"{inner} was {_shown(before[key])} and is gone"
            elif key not in before:
                yield f"{inner} is new: {_shown(now[key])}"
            else:
                yield from _differences(inner, before[key], now[key])
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for at, (old, new) in enumerate(zip(before, now, strict=True)):
            yield from _differences(f"{path}[{at}]", old, new)
    elif before != now:
        yield f"{path} was {_shown(before)} and is now {_shown(now)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict) and "kind" in value:
        return f"a {value['kind']}"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _optimizer(optimizer: Any) -> dict[str, Any]:
    groups = [
        {
            "parameters": len(group["params"]),
            **{
                name: value
                for name, raw in group.items()
                if name != "params" and (value := _plain(raw)) is not None
            },
        }
        for group in optimizer.param_groups
    ]
    return {"kind": kind_of(optimizer), "groups": groups}


def _settings(thing: Any) -> dict[str, Any]:
    """Return the plain attributes of a schedule or a scaler, and digests of the functions that it calls."""
    found = {}
    for name, raw in vars(thing).items():
        if name in _RUNNING or name in ("optimizer", "_schedulers"):
            continue
        value = _function(raw) if callable(raw) else _plain(raw)
        if isinstance(raw, list) and raw and all(map(callable, raw)):
            value = [_function(item) for item in raw]
        if value is not None:
            found[name] = value
    inner = getattr(thing, "_schedulers", None)
    if isinstance(inner, list | tuple):
        found["schedules"] = [{"kind": kind_of(one), **_settings(one)} for one in inner]
    return found


def _plain(value: Any) -> Any:
    """Return a plain value, None for what is none."""
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, list | tuple):
        items = [_plain(item) for item in value]
        return items if None not in items else None
    if isinstance(value, dict):
        return {str(key): plain for key, item in value.items() if (plain := _plain(item)) is not None}
    if getattr(value, "numel", None) is not None and value.numel() == 1:
        return value.item()
    return None


def _function(function: Any) -> str | None:
    """Return a digest of what a function does, and of the plain values that it has closed over."""
    if isinstance(function, functools.partial):
        bound = _plain([*function.args, function.keywords])
        return f"{_function(function.func)} with {bound}"
    code = getattr(function, "__code__", None)
    if code is None:
        return kind_of(function) if not isinstance(function, type) else None
    closed = [_plain(_content(cell)) for cell in function.__closure__ or ()]
    text = repr([_code(code), closed, _plain(function.__defaults__ or ())])
    return f"{function.__qualname__} {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _constant(item: Any) -> Any:
    """Return a constant of a function's code; a set's members in an order that is the same in every process."""
    if hasattr(item, "co_code"):
        return _code(item)
    return sorted(map(repr, item)) if isinstance(item, frozenset) else repr(item)


def _code(code: CodeType) -> list[Any]:
    constants = [_constant(item) for item in code.co_consts]
    return [code.co_code.hex(), constants, code.co_names]
