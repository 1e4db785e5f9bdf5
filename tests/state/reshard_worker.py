"""One of four ranks: saves a state by 1, 2, 3 and 4 of them and restores each by 1, 2, 3 and 4.

Usage: reshard_worker.py LAYOUT RANK FOLDER. Writes what it found to FOLDER/rank-N.json.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from samestep.bundle.storage.local import LocalStorage
from samestep.state import Capture, restore, track
from state_saving import GroupRanks, first_attempt, save_together

WORLD = 4


class Config:
    """What makes a model look like one of transformers."""

    model_type = "toy"

    def to_json_string(self):
        return "{}"


class Net(nn.Module):
    """Sizes that no number of ranks divides, and one weight that is many blocks large."""

    def __init__(self):
        super().__init__()
        self.config = Config()
        self.table = nn.Embedding(2039, 960)
        self.up = nn.Linear(960, 132)
        self.down = nn.Linear(132, 7)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, tokens):
        return self.down(torch.relu(self.up(self.table(tokens)))).sum() * self.scale.sum()


def shard_fsdp(net, n, meshes):
    if n > 1:
        fully_shard(net.up, mesh=meshes[n])
        fully_shard(net, mesh=meshes[n])


def shard_tp(net, n, meshes):
    if n > 1:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(net, meshes[n], plan)


def shard_hybrid(net, n, meshes):
    """Four ranks: two copies of two shards. Two and three: shards. The mesh's second dimension shards."""
    shard_fsdp(net, n, {**meshes, 4: meshes["2x2"]})


def shard_both(net, n, meshes):
    """Four ranks: tensor-parallel in two, each sharded over two."""
    if n < 4:
        shard_fsdp(net, n, meshes)
        return
    mesh = meshes["2x2"]
    parallelize_module(net, mesh["inner"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(net, mesh=mesh["outer"])


LAYOUTS = {"fsdp": shard_fsdp, "tp": shard_tp, "hybrid": shard_hybrid, "both": shard_both}


def built(layout, n, meshes, seed):
    torch.manual_seed(seed)
    net = Net()
    LAYOUTS[layout](net, n, meshes)
    return net, torch.optim.Adam(net.parameters(), lr=1e-2)


def stepped(net, optimizer):
    torch.manual_seed(3)
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randint(0, 2039, (8, 4))).backward()
        optimizer.step()
    with torch.no_grad():
        net.seen += 2


def digests(net, optimizer):
    """Return a digest of every whole tensor of the state."""
    tensors = dict(net.state_dict())
    for name, parameter in net.named_parameters():
        tensors |= {f"{name}.{key}": value for key, value in optimizer.state[parameter].items()}
    whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in tensors.items()}
    return {
        name: hashlib.sha256(t.detach().contiguous().numpy().tobytes()).hexdigest()
        for name, t in whole.items()
    }


def main(layout, rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD)
    members = {n: list(range(n)) for n in range(1, WORLD + 1)}
    groups = {n: dist.new_group(members[n]) for n in members}
    meshes = {n: DeviceMesh("cpu", members[n]) for n in range(2, WORLD + 1)}
    meshes["2x2"] = DeviceMesh("cpu", [[0, 1], [2, 3]], mesh_dim_names=("outer", "inner"))
    expected, bundles = {}, {}
    for n, of_them in members.items():
        if rank < n:
            ranks = GroupRanks(groups[n], of_them)
            storage = LocalStorage(folder / f"store-{n}")
            attempt = first_attempt(folder / f"store-{n}") if rank == 0 else None
            net, optimizer = built(layout, n, meshes, seed=n)
            stepped(net, optimizer)
            model = track("net", net)
            capture = Capture([model, track("adam", optimizer, models={"net": net})], ranks)
            bundles[n] = save_together(ranks, capture.take(), attempt, storage)
            expected[n] = digests(net, optimizer)
            if rank == 0:
                (folder / f"digests-{n}.json").write_text(json.dumps(expected[n]))
        dist.barrier()
    found = []
    for n, of_them in members.items():
        sent = [(bundles, expected)]
        dist.broadcast_object_list(sent, 0)
        every, references = sent[0]
        if rank < n:
            ranks = GroupRanks(groups[n], of_them)
            for saved_by, bundle in every.items():
                net, optimizer = built(layout, n, meshes, seed=99)
                place = LocalStorage(folder / f"store-{saved_by}")
                found.append(
                    restored(net, optimizer, bundle, place, ranks)
                    | {"saved_by": saved_by, "restored_by": n}
                    | {"unlike": unlike(references[saved_by], digests(net, optimizer))}
                )
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def restored(net, optimizer, bundle, place, ranks):
    tracked = [track("net", net), track("adam", optimizer, models={"net": net})]
    done = restore(tracked, bundle, place, ranks=ranks)
    return {
        "needed": done.needed_bytes,
        "read": done.read_bytes,
        "state_json": next(part.size for part in bundle.manifest.parts if part.path == "state.json"),
        "parts": [part.path for part in bundle.manifest.parts],
    }


def unlike(expected, found):
    return sorted(name for name in expected | found if expected.get(name) != found.get(name))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
