"""The training states that are saved and restored: names, shapes and their numbers, the same for every peer.

A state is ``{section: {name: array}}``. Samestep makes one part of a section; the others get it as a nested or flat
dict, as they like it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Shapes = dict[str, dict[str, tuple[int, ...]]]
Arrays = dict[str, dict[str, np.ndarray[Any, Any]]]

_WIDTH: Final = 768
_POOL: Final = 1 << 24


def gpt(scale: float = 1.0) -> Shapes:
    """Return a GPT of 90 M parameters with Adam's two moments and steps: 1.08 GB in 592 tensors at scale 1."""
    model = dict(_transformer(layers=max(1, round(12 * scale)), width=_WIDTH, vocabulary=round(5376 * scale)))
    moments = {f"{name}.{part}": shape for name, shape in model.items() for part in ("exp_avg", "exp_avg_sq")}
    return {"model": model, "optimizer": moments | {f"{name}.step": () for name in model}}


def small(scale: float = 1.0) -> Shapes:
    """Return 16,000 tensors of 3 KB, 49 MB in all, at scale 1."""
    return {"model": {f"blocks.{number}.weight": (_WIDTH,) for number in range(round(16_000 * scale))}}


def lora(scale: float = 1.0) -> Shapes:
    """Return a frozen base of 1 GB with adapters of 7 MB and their two moments, at scale 1."""
    layers = max(1, round(140 * scale))
    adapter = {
        f"layers.{number}.{name}": shape
        for number in range(layers)
        for name, shape in (("lora_A", (8, _WIDTH)), ("lora_B", (_WIDTH, 8)))
    }
    return {
        "base": {f"layers.{number}.weight": (3 * _WIDTH, _WIDTH) for number in range(layers)},
        "adapter": adapter,
        "optimizer": {f"{name}.{part}": shape for name, shape in adapter.items() for part in ("m", "v")},
    }


WORKLOADS: Final[dict[str, Callable[[float], Shapes]]] = {"gpt": gpt, "small": small, "lora": lora}
FROZEN: Final = {"base"}


def _transformer(*, layers: int, width: int, vocabulary: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield "wte.weight", (vocabulary, width)
    yield "wpe.weight", (1024, width)
    for layer in range(layers):
        for norm in ("ln_1", "ln_2"):
            yield f"h.{layer}.{norm}.weight", (width,)
            yield f"h.{layer}.{norm}.bias", (width,)
        for name, out, into in (
            ("attn.qkv", 3 * width, width),
            ("attn.proj", width, width),
            ("mlp.fc", 4 * width, width),
            ("mlp.proj", width, 4 * width),
        ):
            yield f"h.{layer}.{name}.weight", (out, into)
            yield f"h.{layer}.{name}.bias", (out,)
    yield "ln_f.weight", (width,)
    yield "ln_f.bias", (width,)


def filled(shapes: Shapes) -> Arrays:
    """Return arrays of float32 noise, which no compression makes smaller, each in memory of its own."""
    noise = np.random.default_rng(1).standard_normal(_POOL, dtype=np.float32)
    begin = 0

    def next_array(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
        nonlocal begin
        count = int(np.prod(shape))
        begin = (begin + 4099) % (_POOL - count)
        return noise[begin : begin + count].reshape(shape).copy()

    return {
        section: {name: next_array(shape) for name, shape in names.items()}
        for section, names in shapes.items()
    }
