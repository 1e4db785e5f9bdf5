"""Toy parts that the zoo's training scripts share: model, data, crash-safe checkpoints, random states.

Everything here is right; a defect lives in the script of its case only. Constants give every case the
same shape: 20 steps, 6 batches an epoch (epochs end after steps 6, 12 and 18), a save every 4 steps
(the save at step 12 falls on the last batch of an epoch).
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import sys
from collections.abc import Iterator  # noqa: TC003
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

STEPS = 20
SAVE_EVERY = 4
BATCH = 4
SAMPLES = 24
FEATURES = 6

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Stateful(Protocol):
    """Anything with a state to save: a model, an optimizer, a schedule, a stream of batches."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> object: ...


def parser(doc: str | None) -> argparse.ArgumentParser:
    """Return the command line that every script of the zoo has; a script may add to it."""
    made = argparse.ArgumentParser(description=doc)
    made.add_argument("--out", type=Path, required=True, help="durable folder of the run")
    made.add_argument("--twin", action="store_true", help="run the repaired variant")
    return made


def seed_everything(seed: int = 0) -> None:
    """Seed the global random streams of Python, NumPy and torch."""
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - the global stream is what scripts use
    torch.manual_seed(seed)


class TinyNet(nn.Module):
    """Two linear layers with dropout, and batch normalisation on request."""

    def __init__(self, width: int = 8, *, dropout: float = 0.2, norm: bool = False) -> None:
        super().__init__()
        self.body = nn.Linear(FEATURES, width)
        self.norm = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (batch, FEATURES) to (batch, 1)."""
        return self.head(self.dropout(torch.relu(self.norm(self.body(x)))))


class Samples(Dataset[Batch]):
    """A fixed regression set: item i is (features, target, i)."""

    def __init__(self, size: int = SAMPLES) -> None:
        source = torch.Generator().manual_seed(7)
        self.x = torch.randn(size, FEATURES, generator=source)
        self.y = self.x.sum(dim=1, keepdim=True) + torch.randn(size, 1, generator=source) / 4

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Batch:
        return self.x[index], self.y[index], torch.tensor(index)


def permutation(size: int, seed: int, epoch: int) -> list[int]:
    """Return the order of one epoch; nothing but the arguments decides it."""
    source = torch.Generator().manual_seed(1000 * seed + epoch)
    return torch.randperm(size, generator=source).tolist()


class EpochSampler(Sampler[int]):
    """Yields the rest of one epoch's permutation, from any position on."""

    def __init__(self, size: int, seed: int) -> None:
        self.size, self.seed, self.epoch, self.position = size, seed, 0, 0

    def start_at(self, epoch: int, position: int = 0) -> None:
        """Choose the epoch and the number of its samples to leave out."""
        self.epoch, self.position = epoch, position

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from its first sample; frameworks look for this name."""
        self.start_at(epoch)

    def __iter__(self) -> Iterator[int]:
        return iter(permutation(self.size, self.seed, self.epoch)[self.position :])

    def __len__(self) -> int:
        return self.size - self.position


class Stream:
    """Endless batches, epoch after epoch, that can go on from any sample."""

    def __init__(self, data: Dataset[Batch], *, batch: int = BATCH, seed: int = 0, workers: int = 0) -> None:
        self.size = len(data)  # type: ignore[arg-type]
        self.sampler = EpochSampler(self.size, seed)
        # A generator of its own: making an iterator would draw from the global stream otherwise.
        own = torch.Generator().manual_seed(seed)
        self.loader = DataLoader(data, batch, sampler=self.sampler, num_workers=workers, generator=own)
        self.epoch = self.position = 0
        self._batches: Iterator[Batch] | None = None

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Batch:
        if self._batches is None:
            self.sampler.start_at(self.epoch, self.position)
            self._batches = iter(self.loader)
        batch = next(self._batches)
        self.position += len(batch[0])
        if self.position >= self.size:
            self.epoch, self.position, self._batches = self.epoch + 1, 0, None
        return batch

    def state_dict(self) -> dict[str, int]:
        """Return the epoch and the number of its samples already delivered."""
        return {"epoch": self.epoch, "position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on at a saved place."""
        self.epoch, self.position, self._batches = state["epoch"], state["position"], None


def loss_of(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the mean squared error of one batch."""
    return nn.functional.mse_loss(model(batch[0]), batch[1])


def update(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> torch.Tensor:
    """Take one ordinary step and return its loss."""
    optimizer.zero_grad()
    loss = loss_of(model, batch)
    loss.backward()
    optimizer.step()
    return loss


def report(step: int, loss: torch.Tensor, lr: float = 0.0, ids: torch.Tensor | None = None) -> None:
    """Print the line of one step; nine digits tell every float32 from its neighbours."""
    shown = ",".join(str(int(i)) for i in ids) if ids is not None else "-"
    print(f"step {step} loss {loss.item():.9g} lr {lr:.9g} ids {shown}", flush=True)


def rng_state() -> dict[str, Any]:
    """Return the three global random states as plain values and tensors."""
    name, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": [name, keys.tolist(), *rest],
        "torch": torch.get_rng_state(),
    }


def restore_rng(state: dict[str, Any]) -> None:
    """Put the three global random states back."""
    random.setstate(state["python"])
    np.random.set_state(tuple(state["numpy"]))  # noqa: NPY002
    torch.set_rng_state(state["torch"])


def pack(step: int, **parts: Stateful) -> dict[str, Any]:
    """Return the state of every part, the step count and the random states."""
    states: dict[str, Any] = {name: part.state_dict() for name, part in parts.items()}
    return states | {"step": step, "rng": rng_state()}


def unpack(state: dict[str, Any], **parts: Stateful) -> int:
    """Load every part given, then the random states; return the step count."""
    for name, part in parts.items():
        part.load_state_dict(state[name])
    restore_rng(state["rng"])
    return int(state["step"])


def write_durably(path: Path, state: object) -> None:
    """Publish a file in one act: a temporary file, fsync, rename, fsync of the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)


def read_whole(path: Path) -> dict[str, Any] | None:
    """Return what a file holds, None (and a line on stderr) where it is damaged."""
    try:
        state: dict[str, Any] = torch.load(path, weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, pickle.UnpicklingError) as error:
        print(f"{path}: damaged, set aside ({type(error).__name__})", file=sys.stderr)
        return None
    return state


class Checkpoints:
    """Numbered files `ckpt-000004.pt`; the last two are kept, a damaged one is set aside aloud.

    Args:
        folder: where they lie.
        keep: how many stay.
        checked: set aside a file whose own step is not the one in its name.
    """

    def __init__(self, folder: Path, *, keep: int = 2, checked: bool = True) -> None:
        self.folder, self.keep, self.checked = folder, keep, checked

    def path(self, step: int) -> Path:
        """Return the file of one step."""
        return self.folder / f"ckpt-{step:06d}.pt"

    def save(self, step: int, state: dict[str, Any]) -> None:
        """Publish the state of one step, then remove what is too old."""
        write_durably(self.path(step), state)
        for old in self._newest_first()[self.keep :]:
            old.unlink()

    def at(self, step: int) -> dict[str, Any] | None:
        """Return the state of one step, None where its file is missing or damaged."""
        path = self.path(step)
        return read_whole(path) if path.exists() else None

    def newest(self) -> dict[str, Any] | None:
        """Return the newest state that loads, None in an empty folder.

        Raises:
            SystemExit: there are checkpoints and none loads; the message names the newest.
        """
        found = self._newest_first()
        for path in found:
            state = read_whole(path)
            if state and self.checked and self.path(state.get("step", -1)) not in {path, self.path(-1)}:
                print(f"{path}: holds step {state['step']}, set aside", file=sys.stderr)
            elif state:
                print(f"resuming from {path.name}", flush=True)
                return state
        if found:
            sys.exit(f"{found[0]}: damaged, and no older checkpoint loads; nothing was trained")
        return None

    def _newest_first(self) -> list[Path]:
        return sorted(self.folder.glob("ckpt-*.pt"), reverse=True)
