"""A hand-written loop on Accelerate that restarts as the same run.

    python examples/accelerate_loop.py --out runs/accelerate

`save_state` keeps model, optimizer, schedule and generators. Three things are left to us:

- The position in the data: the seedable sampler makes the order repeatable, and `skip_first_batches` goes to
  the right place in it.
- The loader draws from its own generator; one that draws from torch's moves it again after `load_state`.
- A list of what a checkpoint holds, with digests: `load_state` goes on without a word when a file is missing.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, SAVE_EVERY, BATCH, SAMPLES, FEATURES = 3, 3, 8, 64, 16


def make_data():
    source = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    return TensorDataset(inputs, inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True))


def digests(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def save(accelerator, folder):
    """The list is written last: without it the folder is no checkpoint."""
    accelerator.save_state(folder)
    folder.with_suffix(".json").write_text(json.dumps(digests(folder), indent=1))


def newest_whole(out):
    lists = sorted(out.glob("step-*.json"), reverse=True)
    for path in lists:
        folder = path.with_suffix("")
        if path.read_bytes() and json.loads(path.read_text()) == digests(folder):
            return folder
        print(f"{folder} does not hold what {path.name} lists; trying an older one", file=sys.stderr)
    if lists:
        sys.exit(f"no checkpoint in {out} is whole; the newest is {lists[0].with_suffix('')}")
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    set_seed(0)

    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * SAMPLES // BATCH)
    loader = DataLoader(
        make_data(), batch_size=BATCH, shuffle=True, generator=torch.Generator().manual_seed(0)
    )
    model, optimizer, schedule, loader = accelerator.prepare(model, optimizer, schedule, loader)

    step = 0
    if last := newest_whole(out):
        accelerator.load_state(last)
        step = int(last.name.removeprefix("step-"))
        accelerator.print(f"resuming after step {step}")

    first_epoch, position = divmod(step, len(loader))
    for epoch in range(first_epoch, EPOCHS):
        loader.set_epoch(epoch)
        resumed = epoch == first_epoch and position > 0
        for inputs, targets in accelerator.skip_first_batches(loader, position) if resumed else loader:
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            step += 1
            accelerator.print(f"step {step} loss {loss.item():.9g}")
            if step % SAVE_EVERY == 0:
                save(accelerator, out / f"step-{step:06d}")


if __name__ == "__main__":
    main()
