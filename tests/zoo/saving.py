"""What the cases about interrupted saves share: a loop that is right in all but how it saves and what it resumes
from, and the calls that make files last."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import torch
from common import SAVE_EVERY, STEPS, Samples, Stream, TinyNet, pack, report, seed_everything, unpack, update

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

State = dict[str, Any]


def train(save: Callable[[int, State], None], newest: Callable[[], State | None]) -> None:
    """Train to the end; call ``save`` every few steps. Begin with the state that ``newest`` returns, or what it has."""
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "stream": stream}
    state = newest()
    step = unpack(state, **{name: part for name, part in parts.items() if name in state}) if state else 0
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        schedule.step()
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            save(step, pack(step, **parts))


def sync(path: Path) -> None:
    """Make a file, or the names in a folder, outlast a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def sync_tree(folder: Path) -> None:
    """Do so with all that is below a folder."""
    for path in sorted(folder.rglob("*"), reverse=True):
        sync(path)
    sync(folder)


def fresh(folder: Path) -> Path:
    """Return an empty folder in the place of what an interrupted save may have left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def publish(partial: Path, final: Path) -> None:
    """Give a complete folder its name, in one act."""
    sync_tree(partial)
    shutil.rmtree(final, ignore_errors=True)
    partial.rename(final)
    sync(final.parent)


def by_number(folder: Path, pattern: str) -> list[Path]:
    """Return what fits a pattern, sorted by the number in its name."""
    return sorted(folder.glob(pattern), key=lambda path: int("".join(filter(str.isdigit, path.name))))
