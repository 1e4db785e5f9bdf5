"""Two ranks under torchrun that restart as the same run.

    torchrun --standalone --nproc-per-node 2 examples/ddp_torchrun.py --out runs/ddp

Rank 0 keeps what all ranks share; every rank keeps its own random generator. A checkpoint counts once rank 0
has written its marker, after a barrier that all ranks have passed with their part on disk.
"""

import argparse
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, SAVE_EVERY, BATCH, SAMPLES, FEATURES = 20, 4, 4, 48, 16


def make_data():
    source = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    return inputs, inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)


def batch_at(step, rank, ranks):
    """The samples of a step and rank follow from their numbers alone."""
    epoch, position = divmod(step * BATCH * ranks, SAMPLES)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1000 + epoch))
    return order[position + rank * BATCH :][:BATCH]


def write(path, state):
    aside = path.with_suffix(".writing")
    with aside.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def read(path):
    try:
        return torch.load(path, weights_only=True)
    except Exception as error:
        sys.exit(f"{path} cannot be read: {error}")


def save(folder, step, rank, ranks, shared):
    folder.mkdir(exist_ok=True)
    write(folder / f"rank-{rank}.pt", {"torch_rng": torch.get_rng_state()})
    if rank == 0:
        write(folder / "shared.pt", shared)
    dist.barrier()
    if rank == 0:
        write(folder / "complete.pt", {"step": step, "ranks": ranks})


def newest(out, rank, ranks):
    """All ranks take what rank 0 finds, so that they never start from different steps."""
    found = [None]
    if rank == 0 and (complete := sorted(out.glob("step-*/complete.pt"))):
        found = [complete[-1].parent.name]
    dist.broadcast_object_list(found)
    if found[0] is None:
        return None
    folder = out / found[0]
    saved = read(folder / "complete.pt")
    if folder.name != f"step-{saved['step']:06d}":
        sys.exit(f"{folder} holds step {saved['step']}: it is not a checkpoint of this run")
    if saved["ranks"] != ranks:
        sys.exit(f"{folder} was saved by {saved['ranks']} ranks and cannot be resumed by {ranks}")
    print(f"rank {rank} resumes from {folder}")
    state = read(folder / "shared.pt") | saved | read(folder / f"rank-{rank}.pt")
    dist.barrier()  # nobody trains before everybody has its state
    return state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)

    inputs, targets = make_data()
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    first = 0
    if state := newest(out, rank, ranks):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        torch.set_rng_state(state["torch_rng"])
        first = state["step"]

    for step in range(first, STEPS):
        samples = batch_at(step, rank, ranks)
        loss = nn.functional.mse_loss(parallel(inputs[samples]), targets[samples])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"rank {rank} step {step + 1} loss {loss.item():.9g}")
        if (step + 1) % SAVE_EVERY == 0:
            shared = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            save(out / f"step-{step + 1:06d}", step + 1, rank, ranks, shared)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
