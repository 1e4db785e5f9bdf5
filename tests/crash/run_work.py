"""Trainings with the run API, done in a process of their own while a recorder looks on.

What a run says is what it promises: whenever it says that a step is saved, that is recorded among the operations, as
``store_work`` does it.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import forks
from crash.store_forks import in_a_child
from crash.store_work import Work, kill_at, prepared
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store

STEPS, KEEP = 6, 2
KINDS = {"run-waited": False, "run-staged": "stage", "run-overlapped": "overlap"}
KILLED = "run-killed"
NARROW, WIDE = 4, 520
"""Features of the layers; a wide layer has more than the 1 MiB up to which a tensor is copied at once."""

LIMIT_SECONDS = 60
_SAVED = re.compile(r"^saved (b-\S+), step (\d+):")


@dataclass
class Trained:
    """What came of a training.

    Attributes:
        resumed: the step that it went on from.
        losses: of the steps that it made, exactly, by step.
        digest: of the weights and moments at its end.
    """

    resumed: int
    losses: dict[int, str]
    digest: str


def width(scenario):
    """Return how many features the trainings of a scenario have."""
    return WIDE if scenario == "run-overlapped" else NARROW


def train(root, asynchronous="stage", *, features=NARROW, keep=KEEP, begun=None):
    """Train to the last step, and save after each; every source of chance is drawn from at every step."""
    import numpy as np
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    import samestep

    torch.set_num_threads(1)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 - as scripts do
    random.seed(0)
    model = nn.Sequential(nn.Linear(features, features), nn.Dropout(0.2), nn.Linear(features, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.linspace(0, 1, 8 * features).reshape(8, features)
    loader = DataLoader(TensorDataset(inputs, inputs[:, :1].sin()), batch_size=2, shuffle=True)
    run = samestep.Run(
        root,
        model=model,
        optimizer=optimizer,
        data=loader,
        steps=STEPS,
        save=1,
        keep=keep,
        asynchronous=asynchronous,
        notices=(),
    )
    resumed, losses = run.restore(), {}
    if begun is not None:
        begun(run)
    for samples, targets in run:
        scale = random.random() + np.random.rand()  # noqa: NPY002
        loss = nn.functional.mse_loss(model(samples * scale), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses[run.step + 1] = loss.item().hex()
    moments = [value for state in optimizer.state.values() for value in state.values()]
    whole = hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in [*model.parameters(), *moments]))
    return Trained(resumed, losses, whole.hexdigest())


class Telling:
    """Passes on what a run says to the user, and records what it has promised by that."""

    def __init__(self, stream, work):
        self._stream, self._work = stream, work

    def write(self, text):
        for id_, step in _SAVED.findall(text):
            bundle = Store.open(LocalStorage(self._work.root), writing=False).bundle(id_)
            self._work.tell("committed", bundle.number, id_, step)
        return self._stream.write(text)

    def flush(self):
        self._stream.flush()

    def isatty(self):
        return False


def life(work, asynchronous):
    """One life of a training, from wherever the disk lets it go on."""

    def begun(run):
        session = run._life.session
        work.tell("created", session.store.run.id)
        work.tell("registered", session.attempt.number, session.attempt.id)

    sys.stderr = Telling(sys.stderr, work)
    train(work.root, asynchronous, features=width(work.scenario), begun=begun)


def killed(work, at):
    """Let a training be killed at a system call, truly, and the next life go on from there."""

    def first():
        kill_at(at)
        life(work, "overlap")

    ended = in_a_child(first)
    if ended not in {0, signal.SIGKILL}:
        raise SystemExit(f"the first life failed: {ended}")
    work.said = len(list(work.told.iterdir()))
    work.tell("killed" if ended else "ended")
    life(work, "overlap")


def carry_out(where, name):
    """Train: ``run-killed@17`` is killed at a call, ``run-staged@again-3`` goes on from what is there."""
    scenario, _, detail = name.partition("@")
    work = Work(Path(where) / name, scenario)
    if scenario == KILLED and not detail.startswith("again"):
        killed(work, int(detail))
    else:
        life(work, KINDS.get(scenario, "overlap"))


def contents(root):
    """Return what the bundles of a run hold, by step and path."""
    store = Store.open(LocalStorage(root), writing=False)
    return {
        bundle.step: {part.path: (root / bundle.key_of(part)).read_bytes() for part in bundle.manifest.parts}
        for bundle in store.bundles()
    }


def trained(root, *arguments, **options):
    """Train in a process of its own, forked from one with torch loaded; return what came of it, or of the process."""
    receiving, sending = forks.context.Pipe(duplex=False)
    process = forks.process(_send, sending, root, arguments, options)
    process.start()
    sending.close()
    try:
        return receiving.recv() if receiving.poll(LIMIT_SECONDS) else "it hangs"
    except EOFError:
        return "it ended without a word"
    finally:
        process.kill()
        process.join()


def _send(sending, root, arguments, options):
    sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - until the process ends
    try:
        sending.send(train(root, *arguments, **options))
    except BaseException as error:  # noqa: BLE001 - it is the answer
        sending.send(f"{type(error).__name__}: {error}")


def main(where, *names):
    """Work through scenarios, each in a child of its own, forked from a process that has torch loaded."""
    import samestep.data
    import samestep.run  # noqa: F401

    for name in names:
        prepared(where, name)
        if in_a_child(lambda name=name: carry_out(where, name)):
            sys.exit(f"{name} failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
