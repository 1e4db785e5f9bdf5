"""What ranks share: which of them read the same samples, and in which order their gradients are added up."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from .errors import RunError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

    from samestep.state.ranks import Ranks

_TOGETHER = re.compile(r"(tp|cp|sp|pp|ep|tensor|context|sequence|pipeline|expert)", re.IGNORECASE)
"""How the dimensions of a mesh are called along which ranks work on one batch."""


def regrouped(models: Iterable[nn.Module], ranks: Ranks) -> str:
    """Return what to say of models whose gradients are added up in another order after a restart; empty if none are.

    DistributedDataParallel groups gradients anew after its first step, in the order in which they came. Where more than
    two are added up, another grouping rounds otherwise, and a process that has restarted begins with the first one.
    """
    parallel = (model for model in models if isinstance(model, DistributedDataParallel))
    if ranks.size < 3 or all(model.find_unused_parameters for model in parallel):
        return ""
    return (
        "note: DistributedDataParallel groups gradients anew after its first step, so that sums over "
        f"{ranks.size} ranks may differ in the last bit after a restart; find_unused_parameters=True keeps the groups"
    )


def share_of(models: Iterable[nn.Module], ranks: Ranks) -> tuple[int, int]:
    """Return which share of the data this rank reads, and of how many.

    Ranks along a tensor-parallel dimension of a model's mesh read the same one. What a dimension is for is told by its
    name, or by a model that is split up and not by FSDP2. Every rank must call.

    Raises:
        RunError: the ranks do not see the same groups.
    """
    if ranks.size == 1:
        return 0, 1
    groups_here = (_together(mesh, fully) for mesh, fully in _meshes(models).items())
    own = max(groups_here, key=len, default=[ranks.rank])
    told = [json.loads(text) for text in ranks.exchange(json.dumps(sorted(own)).encode())]
    groups = sorted({tuple(group) for group in told})
    if any(tuple(told[rank]) != group for group in groups for rank in group):
        raise RunError(
            f"the ranks do not agree on who works on a batch together: {', '.join(map(str, groups))}",
            hint="give the batches yourself: run.restore(), run.step_done(), run.save()",
        )
    return groups.index(tuple(told[ranks.rank])), len(groups)


def _meshes(models: Iterable[nn.Module]) -> dict[DeviceMesh, bool]:
    """Return the meshes that parameters are split up on, and whether FSDP2 has a part in that."""
    from torch.distributed.fsdp import FSDPModule

    found: dict[DeviceMesh, bool] = {}
    for model in models:
        fully = any(isinstance(part, FSDPModule) for part in model.modules())
        found |= {p.device_mesh: fully for p in model.parameters() if isinstance(p, DTensor)}
    return found


def _together(mesh: DeviceMesh, fully: bool) -> list[int]:
    """Return the ranks that read the same samples as this one."""
    names, place = mesh.mesh_dim_names, mesh.get_coordinate()
    if place is None:
        return []
    along = [bool(_TOGETHER.match(name)) for name in names] if names else [not fully] * mesh.ndim
    chosen = mesh.mesh[tuple(slice(None) if whole else at for whole, at in zip(along, place, strict=True))]
    found: list[int] = chosen.flatten().tolist()
    return found
