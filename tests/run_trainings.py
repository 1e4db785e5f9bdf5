"""Small trainings with the run API, each run in a process of its own that is forked from one with torch loaded."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import json
import os
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import distributed, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import forks
import samestep
from samestep.bundle.parts import PartWriter
from samestep.state.snapshot import Snapshot
from servers.emulators import Emulator
from servers.fault_proxy import FOREVER, FaultProxy

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES, FEATURES, BATCH, STEPS, TIMEOUT_SECONDS = 80, 8, 8, 24, 120


class Augmented(Dataset):
    """Adds noise from the global generator of torch in ``__getitem__``."""

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        inputs = torch.arange(FEATURES, dtype=torch.float32) * (index + 1) / SAMPLES
        return inputs + 0.1 * torch.randn(FEATURES), torch.tensor([float(index % 7) / 7])


class Stream(IterableDataset):
    """A stream that comes the same way every time."""

    def __iter__(self):
        for index in range(SAMPLES):
            yield torch.full((FEATURES,), float(index) / SAMPLES), torch.tensor([float(index % 5) / 5])


@dataclasses.dataclass
class Patience:
    """A script's own counter."""

    best: float = 1e9
    waited: int = 0


class Training:
    """A model, its data and a loop; kinds of trainings change parts of it."""

    arguments: ClassVar[dict[str, Any]] = {}

    def __init__(self, root, *, steps=STEPS, **arguments):
        torch.manual_seed(0)
        self.root, self.steps = root, steps
        self.model = nn.Sequential(
            nn.Linear(FEATURES, 16), nn.BatchNorm1d(16), nn.Dropout(0.1), nn.Linear(16, 1)
        )
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, steps)
        self.loader = self.make_loader()
        self.run = self.make_run(arguments)

    def make_loader(self):
        inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(1))
        return DataLoader(
            TensorDataset(inputs, inputs.sum(1, keepdim=True).sin()), batch_size=BATCH, shuffle=True
        )

    def make_run(self, arguments):
        made = {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "data": self.loader,
            "steps": self.steps,
            "save": 4,
            "progress": False,
        }
        return samestep.Run(self.root, **{**made, **self.arguments, **arguments})

    def loss(self, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(self.model(inputs), targets)

    def step(self, batch):
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss

    def state(self):
        return self.model.state_dict()


class Workers(Training):
    def make_loader(self):
        return DataLoader(Augmented(), batch_size=BATCH, shuffle=True, num_workers=2)


class Noisy(Training):
    def make_loader(self):
        return DataLoader(Augmented(), batch_size=BATCH, shuffle=True)


class Streamed(Training):
    def make_loader(self):
        return DataLoader(Stream(), batch_size=BATCH)


class Epochs(Training):
    def make_run(self, arguments):
        return super().make_run({"steps": None, "epochs": 3, **arguments})


class Averaged(Training):
    """An averaged model and a counter of the script's own."""

    def make_run(self, arguments):
        self.ema = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)
        )
        self.patience = Patience()
        return super().make_run({"ema": self.ema, "patience": self.patience, **arguments})

    def step(self, batch):
        loss = super().step(batch)
        self.ema.update_parameters(self.model)
        self.patience.waited = 0 if loss.item() < self.patience.best else self.patience.waited + 1
        self.patience.best = min(self.patience.best, loss.item())
        return loss

    def state(self):
        counters = torch.tensor([self.patience.best, self.patience.waited], dtype=torch.float64)
        return {
            **super().state(),
            **{f"ema.{k}": v for k, v in self.ema.state_dict().items()},
            "counters": counters,
        }


class Gan(Training):
    """Two models and two optimizers, one batch for both."""

    def make_run(self, arguments):
        self.critic = nn.Linear(1, 1)
        self.second = torch.optim.SGD(self.critic.parameters(), lr=1e-2, momentum=0.9)
        return super().make_run(
            {
                "model": {"generator": self.model, "critic": self.critic},
                "optimizer": {"generator_optimizer": self.optimizer, "critic_optimizer": self.second},
                **arguments,
            }
        )

    def step(self, batch):
        inputs, targets = batch
        made = self.model(inputs)
        loss = (self.critic(made.detach()) - self.critic(targets)).mean() + self.critic.weight.square().sum()
        self.second.zero_grad()
        loss.backward()
        self.second.step()
        return super().step(batch) + loss.detach()

    def state(self):
        return {**super().state(), **{f"critic.{k}": v for k, v in self.critic.state_dict().items()}}


class Scaled(Training):
    """A gradient scaler whose second update is skipped."""

    def make_run(self, arguments):
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=5)
        return super().make_run({"scaler": self.scaler, **arguments})

    def step(self, batch):
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        scaled = self.scaler.scale(loss)
        scaled.backward()
        if self.run.step in (1, 9):
            next(iter(self.model.parameters())).grad[0, 0] = float("inf")
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()
        return loss

    def state(self):
        return {**super().state(), "scale": torch.tensor(self.scaler.get_scale())}


class Accumulated(Training):
    """Three micro-steps for each update."""

    def make_run(self, arguments):
        self.micro = 0
        return super().make_run(arguments)

    def step(self, batch):
        if self.micro == 0 and self.arguments.get("accumulation") == "capture":
            self.micro = self.run.micro_steps
        loss = self.loss(batch)
        (loss / 3).backward()
        self.micro += 1
        if self.micro == 3:
            self.micro = 0
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.schedule.step()
        return loss


class Captured(Accumulated):
    arguments: ClassVar[dict[str, Any]] = {"accumulation": "capture"}


class Replicated(Training):
    """Distributed data parallel."""

    def make_run(self, arguments):
        fixed_groups = distributed.get_world_size() > 2  # see samestep.run.sharing.regrouped
        self.parallel = nn.parallel.DistributedDataParallel(self.model, find_unused_parameters=fixed_groups)
        return super().make_run({"model": self.parallel, **arguments})

    def loss(self, batch):
        inputs, targets = batch
        return nn.functional.mse_loss(self.parallel(inputs), targets)


class Sharded(Training):
    """Fully sharded, by DTensors. Which samples were seen is kept in a file for each rank."""

    def make_loader(self):
        inputs = torch.arange(SAMPLES, dtype=torch.float32).repeat(FEATURES, 1).T / SAMPLES
        return DataLoader(TensorDataset(inputs, inputs[:, :1].sin()), batch_size=2, shuffle=True)

    def make_run(self, arguments):
        from torch.distributed.fsdp import fully_shard

        del self.model[1:3]  # batch statistics and dropout differ with the number of ranks
        mesh = distributed.device_mesh.init_device_mesh("cpu", (distributed.get_world_size(),))
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps)
        return super().make_run(arguments)

    def step(self, batch):
        with (self.root.parent / f"seen-{os.getpid()}").open("a") as file:
            print(*(round(first * SAMPLES) for first in batch[0][:, 0].tolist()), file=file)
        return super().step(batch)


class Split(Sharded):
    """Tensor parallel: the ranks work on each batch together."""

    def make_run(self, arguments):
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        del self.model[1:3]
        mesh = distributed.device_mesh.init_device_mesh("cpu", (distributed.get_world_size(),))
        parallelize_module(self.model, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps)
        return Training.make_run(self, arguments)


class OwnLoop(Training):
    """The loop is the script's own, and so are its batches."""

    def make_loader(self):
        inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(1))
        self.samples = inputs, inputs.sum(1, keepdim=True).sin()

    def batches(self):
        for step in range(self.run.restore(), self.steps):
            places = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(step))[:BATCH]
            yield tuple(samples[places] for samples in self.samples)
            self.run.step_done()
            if self.run.due():
                self.run.save()
        self.run.close()


class BrokenOff(Training):
    """The loop is left at step 7, and the run is closed."""

    def batches(self):
        for number, batch in enumerate(self.run, start=1):
            yield batch
            if number == 7:
                break
        self.run.close()


class Reentered(Training):
    """The loop is left at the end of each epoch, and begun again."""

    def batches(self):
        for _ in range(3):
            for batch in self.run:
                yield batch
                if self.run.at_epoch_end:
                    break


class ToldTwice(Training):
    """The loop of the run, and a body that tells it of each step."""

    def step(self, batch):
        loss = super().step(batch)
        self.run.step_done()
        return loss


class Leftover(Accumulated):
    """An epoch that ends inside an accumulation window."""

    arguments: ClassVar[dict[str, Any]] = {"steps": None, "epochs": 1, "save": 100}


class Wider(Training):
    def make_run(self, arguments):
        self.model[3] = nn.Linear(16, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps)
        return super().make_run(arguments)


class Descending(Training):
    def make_run(self, arguments):
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, self.steps)
        return super().make_run(arguments)


class OtherData(Training):
    def make_loader(self):
        inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(2))
        return DataLoader(TensorDataset(inputs, inputs[:, :1]), batch_size=BATCH, shuffle=True)


class Reordered(Training):
    def make_loader(self):
        return DataLoader(super().make_loader().dataset, batch_size=BATCH)


class Forgetful(Training):
    """An averaged model, a second optimizer and a second loader that nobody names."""

    def make_run(self, arguments):
        self.shadow = copy.deepcopy(self.model)
        self.second = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
        self.validation = DataLoader(self.loader.dataset)
        self.noise = torch.Generator()
        return super().make_run(arguments)


class Throwing(Training):
    """A batch that cannot be had."""

    def make_loader(self):
        class Broken(TensorDataset):
            def __getitem__(self, index):
                if index == 41:
                    raise ValueError("sample 41 is broken")
                return super().__getitem__(index)

        inputs = torch.randn(SAMPLES, FEATURES, generator=torch.Generator().manual_seed(1))
        return DataLoader(Broken(inputs, inputs[:, :1]), batch_size=BATCH)


class Raising(Training):
    """A body that raises right after a save was begun."""

    def step(self, batch):
        if self.run.step == 4:
            raise ValueError("the body is broken")
        return super().step(batch)


class Failing(Sharded):
    """One rank ends in the middle of the second save, when it has written its part and told nobody."""

    def __init__(self, root, *, fails="", rank=1, **arguments):
        if fails and distributed.get_rank() == rank:
            self.saves = 0
            settle = PartWriter.settle

            def failing(writer):
                self.saves += 1
                if self.saves == 2:
                    self.fail(fails)
                settle(writer)

            PartWriter.settle = failing
        self.pause_seconds = 0.3 if fails == "lingers" else 0.0
        super().__init__(root, **arguments)

    def step(self, batch):
        time.sleep(self.pause_seconds)
        return super().step(batch)

    def fail(self, way):
        if way == "lingers":
            let_go_slowly(Snapshot, "close")
        if way in ("raises", "lingers"):
            raise OSError("the disk of this rank is broken")
        if way == "exits":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGSTOP)


def let_go_slowly(kind, name):
    """Let a method take several steps: by then the other ranks know of the failure."""
    original = getattr(kind, name)

    def slow(self):
        time.sleep(2.0)
        original(self)

    setattr(kind, name, slow)


FAULTY = {
    kind.__name__.lower(): kind
    for kind in (
        Wider, Descending, OtherData, Reordered, Forgetful, Throwing, BrokenOff, Reentered, ToldTwice, Leftover,
        Raising, Failing,
    )
}  # fmt: skip

KINDS = {
    kind.__name__.lower(): kind
    for kind in (
        Training, Workers, Noisy, Streamed, Epochs, Averaged, Gan, Scaled, Accumulated, Captured, OwnLoop,
        Replicated, Sharded, Split,
    )
}  # fmt: skip


@dataclasses.dataclass
class Bucket:
    """A place in an S3 emulator that a training reaches through a proxy, which may break requests.

    Attributes:
        port: of the emulator.
        prefix: in its bucket.
        broken_at: number of the batch after which requests are broken; 0: from the beginning.
        fault: what becomes of them then, see ``FaultProxy``.
        method: of the requests that are broken; all when None.
    """

    port: int
    prefix: str
    broken_at: int | None = None
    fault: str = "reset"
    method: str | None = None

    @contextlib.contextmanager
    def reached(self):
        """Lend the URL, and a function that is called after each batch."""
        emulator = Emulator("s3", self.port)
        with FaultProxy(self.port) as proxy:
            os.environ |= emulator.environment(proxy.port)

            def passed(number):
                if number == self.broken_at:
                    proxy.break_request(self.fault, method=self.method, times=FOREVER)

            passed(0)
            yield emulator.url(self.prefix), passed


@dataclasses.dataclass
class Result:
    """What came of a training.

    Attributes:
        exit_code: of its process, negative for a signal.
        losses: by the number of the batch, from the beginning of the run.
        digest: of its final state; empty when it did not come to an end.
        text: what it wrote to stderr.
    """

    exit_code: int
    losses: dict[str, str]
    digest: str
    text: str


def train(kind: str, root: Path, **options: Any) -> Result:
    """Train in a process of its own.

    Args:
        kind: of the training.
        root: of the run.
        options: ``kill_at``, ``remove_at`` (takes the store away) and ``meanwhile_at`` (starts the same training again)
            are numbers of batches of this process, the keys of ``signals`` too; ``bucket`` is a place to use instead
            of ``root``, and ``url`` the address of another; others are of ``Run``.
    """
    return _finished(kind, *_started(kind, root, options))


def _started(kind: str, root: Path, options: dict[str, Any]) -> tuple[Any, Path]:
    report = root.parent / f"{root.name}-{time.monotonic_ns()}"
    process = forks.process(_train, kind, root, report, options)
    process.start()
    return process, report


def _finished(kind: str, process: Any, report: Path) -> Result:
    process.join(TIMEOUT_SECONDS)
    if process.is_alive():
        process.kill()
        raise TimeoutError(
            f"{kind} was still running after {TIMEOUT_SECONDS} s: {_text(report.with_suffix('.err'))}"
        )
    lines = [json.loads(line) for line in _text(report.with_suffix(".jsonl")).splitlines()]
    losses = {line["batch"]: line["loss"] for line in lines if "batch" in line}
    digest = next((line["digest"] for line in lines if "digest" in line), "")
    return Result(process.exitcode or 0, losses, digest, _text(report.with_suffix(".err")))


def train_ranks(kind: str, root: Path, ranks: int, **options: Any) -> list[Result]:
    """Train with several gloo ranks on this machine; see ``train``."""
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    signals = options.pop("rank_signals", {})
    started = [
        _started(kind, root, {"signals": signals.get(rank, {}), **options, "world": (rank, ranks, port)})
        for rank in range(ranks)
    ]
    results = []
    for rank, one in enumerate(started):
        if signals.get(rank):  # it may be stopped for good
            one[0].kill()
        results.append(_finished(kind, *one))
    return results


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _train(kind: str, root: Path, report: Path, options: dict[str, Any]) -> None:
    sys.stderr = report.with_suffix(".err").open("w", buffering=1)
    torch.set_num_threads(1)
    kill_at, signals = options.pop("kill_at", None), options.pop("signals", {})
    remove_at, meanwhile_at = options.pop("remove_at", None), options.pop("meanwhile_at", None)
    os.chdir(root.parent)
    if "world" in options:
        rank, size, port = options.pop("world")
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        distributed.init_process_group("gloo", rank=rank, world_size=size)
    bucket = options.pop("bucket", None)
    place = (
        contextlib.nullcontext((options.pop("url", root), lambda _: None))
        if bucket is None
        else bucket.reached()
    )
    with report.with_suffix(".jsonl").open("a", buffering=1) as file, place as (where, passed):
        training = (KINDS | FAULTY)[kind](where, **options)
        batches = training.batches() if hasattr(training, "batches") else iter(training.run)
        for number, batch in enumerate(batches, start=1):
            loss = training.step(batch)
            print(
                json.dumps({"batch": number, "step": training.run.step, "loss": loss.item().hex()}), file=file
            )
            passed(number)
            if number == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            for sent in signals.get(number, ()):
                os.kill(os.getpid(), sent)
            if number == remove_at:
                root.rename(root.with_name("taken away"))
                root.write_text("no folder any more")
            if number == meanwhile_at:
                _finished(kind, *_started(kind, root, options))
        digest = hashlib.sha256()
        for name, value in sorted(training.state().items()):
            whole = value.full_tensor() if hasattr(value, "full_tensor") else value
            digest.update(name.encode() + whole.numpy().tobytes())
        print(json.dumps({"digest": digest.hexdigest()}), file=file)
