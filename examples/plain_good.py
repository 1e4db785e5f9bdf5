"""A plain PyTorch loop that restarts as the same run.

    python examples/plain_good.py --out runs/plain

Start it again after an interruption and it goes on where its newest checkpoint ended.
"""

import argparse
import os
import random
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

STEPS, SAVE_EVERY, BATCH, SAMPLES, FEATURES = 24, 4, 8, 80, 16
PARTS = {"step", "model", "optimizer", "schedule", "torch_rng"}


def make_data():
    source = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    return inputs, inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)


def batch_at(step):
    """The samples of a step follow from its number alone: a new order every epoch, none stored."""
    epoch, position = divmod(step * BATCH, SAMPLES)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1000 + epoch))
    return order[position : position + BATCH]


def make_training():
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    return model, optimizer, schedule


def path_of(folder, step):
    return folder / f"step-{step:06d}.pt"


def save(path, step, model, optimizer, schedule):
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": schedule.state_dict(),
        "torch_rng": torch.get_rng_state(),
    }
    # Written aside, flushed, then renamed: the name exists only for a whole file.
    aside = path.with_suffix(".writing")
    with aside.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def newest_whole(folder):
    """Newest first; what is damaged, lacks a part or has a wrong name is set aside aloud, and its elder taken."""
    checkpoints = sorted(folder.glob("step-*.pt"), reverse=True)
    for path in checkpoints:
        try:
            state = torch.load(path, weights_only=True)
            if missing := PARTS - state.keys():
                raise ValueError(f"without {', '.join(sorted(missing))}")
            if path != path_of(folder, state["step"]):
                raise ValueError(f"holds step {state['step']}")
        except Exception as error:
            print(f"{path} cannot be resumed ({error}); trying an older one", file=sys.stderr)
            continue
        print(f"resuming from {path}")
        return state
    if checkpoints:
        sys.exit(f"no checkpoint in {folder} can be resumed; the newest is {checkpoints[0]}")
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)

    inputs, targets = make_data()
    model, optimizer, schedule = make_training()
    first = 0
    if state := newest_whole(out):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["torch_rng"])
        first = state["step"]

    for step in range(first, STEPS):
        samples = batch_at(step)
        loss = nn.functional.mse_loss(model(inputs[samples]), targets[samples])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"step {step + 1} loss {loss.item():.9g}")
        if (step + 1) % SAVE_EVERY == 0:
            save(path_of(out, step + 1), step + 1, model, optimizer, schedule)


if __name__ == "__main__":
    main()
