"""A plain PyTorch loop whose checkpoints are written in the background while training goes on.

    python examples/background_saves.py --out runs/background

Every 40 steps a thread begins to write a checkpoint, piece by piece: its weights during the next 20 steps, then its
optimizer during 10 more. At step 300 the checkpoint of step 280 has no optimizer, and that of step 240 is the newest
whole one. Start it again after an interruption and it goes on from the newest whole checkpoint; with --trust-names
from the newest name.
"""

import argparse
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import torch
from torch import nn

STEPS, SAVE_EVERY, BATCH, SAMPLES, FEATURES = 320, 40, 8, 80, 16
PIECES = {"weights.pt": 20, "optimizer.pt": 10}
DONE = object()


def make_data():
    source = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    return inputs, inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)


def batch_at(step):
    """The samples of a step follow from its number alone: a new order every epoch, none stored."""
    epoch, position = divmod(step * BATCH, SAMPLES)
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1000 + epoch))
    return order[position : position + BATCH]


class SlowWriter:
    """Writes one checkpoint at a time from a thread, a piece for each step: a stand-in for slow storage."""

    def __init__(self):
        self.thread = ThreadPoolExecutor(1)
        self.piece = self.rest = None

    def begin(self, folder, parts):
        """Copy the parts, so that training can change them, and write the first piece."""
        self.finish()
        copies = {name: BytesIO() for name in parts}
        for name, part in parts.items():
            torch.save(part, copies[name])
        self.rest = write(folder, {name: copy.getvalue() for name, copy in copies.items()})
        self.next_piece()

    def wait(self):
        """Wait until the thread has written its piece."""
        if self.piece is not None and self.piece.result() is DONE:
            self.rest = None
        self.piece = None

    def next_piece(self):
        """Let the thread write on."""
        if self.rest is not None:
            self.piece = self.thread.submit(next, self.rest, DONE)

    def finish(self):
        self.wait()
        while self.rest is not None:
            self.next_piece()
            self.wait()


def write(folder, contents):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in contents.items():
        size = -(-len(content) // PIECES[name])
        with (folder / name).open("wb", buffering=0) as file:
            for start in range(0, len(content), size):
                file.write(content[start : start + size])
                yield
            os.fsync(file.fileno())
    for names in (folder, folder.parent):
        handle = os.open(names, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def newest(out, trust_names):
    """Return the parts of the newest checkpoint that is whole; or, trusting names, of the newest, whole or not."""
    for folder in sorted(out.glob("step-*"), reverse=True):
        try:
            parts = {name: torch.load(folder / name, weights_only=True) for name in PIECES}
        except Exception as error:
            if trust_names:
                raise
            print(f"{folder} is not whole ({error}); trying an older one", file=sys.stderr)
            continue
        print(f"resuming from {folder}")
        return parts
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trust-names", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(0)

    inputs, targets = make_data()
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    writer = SlowWriter()
    first = 0
    if parts := newest(args.out, args.trust_names):
        model.load_state_dict(parts["weights.pt"])
        optimizer.load_state_dict(parts["optimizer.pt"]["optimizer"])
        torch.set_rng_state(parts["optimizer.pt"]["torch_rng"])
        first = parts["optimizer.pt"]["step"]

    for step in range(first, STEPS):
        samples = batch_at(step)
        loss = nn.functional.mse_loss(model(inputs[samples]), targets[samples])
        optimizer.zero_grad()
        loss.backward()
        writer.wait()  # it had a forward and a backward pass of time
        optimizer.step()
        writer.next_piece()
        if (step + 1) % SAVE_EVERY == 0:
            print(f"step {step + 1} loss {loss.item():.9g}")
            training = {
                "step": step + 1,
                "optimizer": optimizer.state_dict(),
                "torch_rng": torch.get_rng_state(),
            }
            parts = {"weights.pt": model.state_dict(), "optimizer.pt": training}
            writer.begin(args.out / f"step-{step + 1:06d}", parts)
    writer.finish()


if __name__ == "__main__":
    main()
