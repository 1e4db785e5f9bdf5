"""The column that describes accelerators in SkyPilot's catalogues: looked at for what is wrong, used for nothing."""

from __future__ import annotations

import ast
import functools
import json
from typing import Any

_LEAST_MIB = 1024
_LONGEST = 10_000


@functools.lru_cache(maxsize=4096)
def gpu_info_quirks(text: str, count: str, host_memory: str) -> tuple[tuple[str, str], ...]:
    """Return what is odd: pairs of a kind and of what stands there.

    Args:
        text: of the column; the name of the accelerator alone, or nothing, is no oddity.
        count: of the column with the number of accelerators.
        host_memory: of the column with the memory of the machine, in GiB.
    """
    if not text.startswith("{"):
        return ()
    info, kinds = _read(text)
    try:
        gpu = info["Gpus"][0]
        size, total, number = gpu["MemoryInfo"]["SizeInMiB"], info["TotalGpuMemoryInMiB"], gpu["Count"]
        found = [*kinds, *_memory(float(size), float(total), float(number), host_memory)]
        if count and float(count) != float(number):
            found.append(("count-differs", f"{number:g} described, {count} in the column"))
    except (KeyError, IndexError, TypeError, ValueError):
        return (("gpu-info", text[:80]),)
    return tuple(found)


def _read(text: str) -> tuple[Any, list[tuple[str, str]]]:
    if len(text) > _LONGEST:
        return None, []
    try:
        return json.loads(text), [("gpu-info-json", "JSON")]
    except (ValueError, RecursionError):
        pass
    try:
        return ast.literal_eval(text), []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None, []


def _memory(size: float, total: float, number: float, host_memory: str) -> list[tuple[str, str]]:
    found = []
    if 0 < size < _LEAST_MIB:
        found.append(("memory-unit", f"{size:g} MiB for each"))
    elif host_memory and total == float(host_memory) * 1024:
        found.append(("memory-of-host", f"{total:g} MiB in all, and the host has {host_memory} GiB"))
    if total != size * number:
        found.append(("memory-total", f"{number:g} of {size:g} MiB each, {total:g} MiB in all"))
    return found
