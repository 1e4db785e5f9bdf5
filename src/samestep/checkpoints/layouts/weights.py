"""Weights in a folder: one file, shards with an index, or an adapter beside a base model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from samestep.contract import Component, Intent

if TYPE_CHECKING:
    from .draft import Draft

_MODEL_FILE = re.compile(r"^((pytorch_)?model)(_\d+)?(-\d+-of-\d+)?\.(safetensors|bin)$")
_ADAPTER_FILE = re.compile(r"^adapter_model\.(safetensors|bin)$")
_INDEX_FILE = re.compile(r"^(pytorch_)?model\.(safetensors|bin)\.index\.json$")
_SHARDED = re.compile(
    r"^(pytorch_model_fsdp_\d+|pytorch_model|global_step\d+)/|^pytorch_model_fsdp(_\d+)?\.bin$"
)
_COMPILED = "_orig_mod."
_PARALLEL = "module."


def report_weights(draft: Draft) -> None:
    """Report the weights of a folder and check that all shards of an index are there."""
    models, adapters = draft.matching(_MODEL_FILE), draft.matching(_ADAPTER_FILE)
    sharded = draft.matching(_SHARDED)
    found = models or adapters or sharded
    for index in draft.matching(_INDEX_FILE):
        _check_index(draft, index)
    if not found:
        draft.missing("model.safetensors", "there is no file with weights")
        draft.absent(Component.WEIGHTS)
        return
    draft.weights_files |= {draft.names[name] for name in found}
    where = found[0] if len(found) == 1 else f"{found[0]} and {len(found) - 1} more"
    draft.present(Component.WEIGHTS, where)
    note_adapter(draft)
    for name in models:
        note_prefixes(draft, draft.contents[name].mapping)


def note_prefixes(draft: Draft, state: dict[object, object]) -> None:
    """Note key prefixes left by wrappers: a model without that wrapper does not find its weights."""
    for prefix, wrapper in (
        (_COMPILED, "torch.compile"),
        (_PARALLEL, "DataParallel or DistributedDataParallel"),
    ):
        if state and all(str(key).startswith(prefix) for key in state):
            draft.caveats[Intent.WEIGHTS].append(f'every key begins with "{prefix}", left by {wrapper}')


def _check_index(draft: Draft, index: str) -> None:
    weight_map = draft.contents[index].mapping.get("weight_map")
    if isinstance(weight_map, dict):
        for shard in sorted({str(shard) for shard in weight_map.values()} - draft.names.keys()):
            draft.missing(shard, f"{index} names it")


def note_adapter(draft: Draft) -> None:
    """Note that an adapter alone is no model."""
    if not draft.matching(_ADAPTER_FILE) or draft.matching(_MODEL_FILE):
        return
    config = draft.file("adapter_config.json")
    base = config.mapping.get("base_model_name_or_path") if config else None
    named = f'the base model "{base}"' if base else "a base model that is not named"
    draft.caveats[Intent.WEIGHTS].append(f"it is an adapter and needs {named}")
