"""The files beside the weights that let ``from_pretrained`` open the folder of a bundle as it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from torch.distributed.fsdp import FSDPModule

from samestep.state.layout import MODEL, index_path, index_text
from samestep.state.naming import bare

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.state.layout import Layout
    from samestep.state.seam import Source


def files_beside(source: Source, layout: Layout) -> Iterator[tuple[str, bytes]]:
    """Yield the path and content of each file, the same from save to save.

    A model that is sharded has no index, without which nobody takes its pieces for a model.
    """
    if not source.whole:
        return
    index = index_text(layout, source.name) if layout.is_whole(source.name) else None
    if index is not None:
        yield index_path(layout, source.name), index
    stem = next((part.path for part in layout.parts if part.source == source.name), "")
    if stem.startswith((f"{MODEL}.", f"{MODEL}-")):
        yield from _configurations(getattr(source, "thing", None))


def _configurations(thing: Any) -> Iterator[tuple[str, bytes]]:
    """Yield the configuration of a model of transformers, as it would save it."""
    model = bare(thing) if thing is not None else None
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "model_type") or not hasattr(config, "to_json_string"):
        return
    content = json.loads(config.to_json_string())
    content["architectures"] = [_architecture(model)]
    content.setdefault("dtype", str(getattr(model, "dtype", "torch.float32")).removeprefix("torch."))
    yield "config.json", _written(content)
    generation: Any = getattr(model, "generation_config", None)
    if hasattr(generation, "to_json_string"):
        yield "generation_config.json", _written(json.loads(generation.to_json_string()))


def _architecture(model: Any) -> str:
    """Return the name of a model's class as it was before FSDP made one of its own of it."""
    if isinstance(model, FSDPModule):
        return next(kind for kind in type(model).__mro__[1:] if not issubclass(kind, FSDPModule)).__name__
    return type(model).__name__


def _written(content: dict[str, Any]) -> bytes:
    return json.dumps(content, indent=2, sort_keys=True).encode() + b"\n"
