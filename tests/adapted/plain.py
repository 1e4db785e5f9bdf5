"""Scripts of the zoo whose loops are their own, moved to ``samestep.Run``: one case each."""

from __future__ import annotations

import copy
import os
import random
import signal
import sys
from collections.abc import Iterator  # noqa: TC003
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))

import numpy as np
import torch
from common import (
    BATCH,
    FEATURES,
    SAVE_EVERY,
    STEPS,
    Batch,
    Samples,
    TinyNet,
    loss_of,
    parser,
    report,
    seed_everything,
    update,
    write_durably,
)
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, MultiStepLR, OneCycleLR, SequentialLR
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

import samestep

KEPT: dict[str, Any] = {"save": SAVE_EVERY, "asynchronous": False}


class Noisy(Samples):
    """Adds noise to the features where they are fetched."""

    def __getitem__(self, index: int) -> Batch:
        x, y, number = super().__getitem__(index)
        return x + torch.randn(FEATURES) / 10, y, number


class Endless(IterableDataset[Batch]):
    """Reads the samples round and round."""

    def __iter__(self) -> Iterator[Batch]:
        samples = Samples()
        return (samples[number % len(samples)] for number in count())


class Training:
    """The tiny network, its optimizer and shuffled samples; cases change parts of it."""

    def __init__(self, args: Any) -> None:
        self.args, self.out = args, args.out / "bundles"
        self.model: nn.Module = TinyNet()
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02)
        self.loader: Any = DataLoader(Samples(), args.batch, shuffle=True)
        self.make()
        self.run = samestep.Run(self.out, **(self.known() | KEPT))
        self.begin()

    def make(self) -> None:
        """Change what the run is to know."""

    def known(self) -> dict[str, Any]:
        """Return what the run is told."""
        return {"model": self.model, "optimizer": self.optimizer, "data": self.loader, "steps": STEPS}

    def begin(self) -> None:
        """Do what comes between the run and its loop."""

    def step(self, batch: Batch) -> torch.Tensor:
        return update(self.model, self.optimizer, batch)

    def train(self) -> None:
        for batch in self.run:
            if self.run.step == self.args.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            rate = self.optimizer.param_groups[0]["lr"]
            loss = self.step(batch)
            report(self.run.step + 1, loss, rate, batch[2])


class Centred(TinyNet):
    """Subtracts a running mean of its inputs, which no state dict holds."""

    def __init__(self) -> None:
        super().__init__(norm=True)
        self.register_buffer("centre", torch.zeros(FEATURES), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.centre.lerp_(x.mean(dim=0), 0.2)
        return super().forward(x - self.centre)


class Wrapped(nn.Module):
    """Holds the model under a name of its own, as torch.compile and DistributedDataParallel do."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self._orig_mod = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._orig_mod(x)


class State(Training):
    """A wrapped model with statistics, a layer that is frozen now and then, noise from every generator, a copy for
    evaluations, and a weight decay that only the first start finds out."""

    def make(self) -> None:
        self.model = Wrapped(Centred())
        self.evaluated = copy.deepcopy(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.02, weight_decay=0.01)
        self.noise = np.random.default_rng(3)

    def known(self) -> dict[str, Any]:
        return super().known() | {"noise": self.noise}

    def begin(self) -> None:
        self.run.irrelevant("evaluated", because="it is filled from the model before each evaluation")
        TinyNet()  # draws from the stream that the loop is to find as it was
        if self.run.restore() == 0:
            self.optimizer.param_groups[0]["weight_decay"] = 0.2

    def step(self, batch: Batch) -> torch.Tensor:
        x, *rest = batch
        drawn = self.noise.normal(scale=0.1, size=x.shape)
        drawn += np.random.normal(scale=0.1, size=x.shape)  # noqa: NPY002 - the global stream is the subject
        x = x + torch.from_numpy(drawn).float() + random.random() / 10
        self.model.get_submodule("_orig_mod.body").requires_grad_(self.run.step % 6 not in {3, 4})
        return update(self.model, self.optimizer, (x, *rest))


class Pair(nn.Module):
    """Two layers of equal shape, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))


class Swapped(Training):
    """A restart lists two layers of equal shape in the other order."""

    def make(self) -> None:
        self.model = Pair()
        layers = [self.model.first, self.model.second, self.model.head]
        if self.out.exists():
            layers[:2] = layers[1::-1]
        parameters = [parameter for layer in layers for parameter in layer.parameters()]
        self.optimizer = torch.optim.Adam(parameters, lr=0.02)


class Frozen(Training):
    """A restart freezes a layer and builds its optimizer over the rest."""

    def make(self) -> None:
        self.model.body.requires_grad_(not self.out.exists())
        trained = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.AdamW(trained, lr=0.02)


class Schedules(Training):
    """A warm-up with a decay, one cycle, and a rate that falls at the end of epochs, each with its own optimizer."""

    def make(self) -> None:
        self.models = {name: TinyNet() for name in ("warmed", "cycled", "stepped")}
        self.optimizers = {
            f"{name}-optimizer": torch.optim.AdamW(model.parameters(), lr=0.02)
            for name, model in self.models.items()
        }
        warmed, cycled, stepped = self.optimizers.values()
        parts = [LinearLR(warmed, 0.2, total_iters=5), CosineAnnealingLR(warmed, STEPS - 5)]
        self.schedules = {
            "warm-up": SequentialLR(warmed, parts, milestones=[5]),
            "cycle": OneCycleLR(cycled, max_lr=0.05, total_steps=STEPS + 1),
            "epochs": MultiStepLR(stepped, milestones=[1, 2, 3], gamma=0.5),
        }
        self.model, self.optimizer = self.models["warmed"], warmed

    def known(self) -> dict[str, Any]:
        named = {"model": self.models, "optimizer": self.optimizers, "schedule": self.schedules}
        return super().known() | named

    def step(self, batch: Batch) -> torch.Tensor:
        loss = torch.stack([loss_of(model, batch) for model in self.models.values()]).sum()
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        loss.backward()
        for optimizer in self.optimizers.values():
            optimizer.step()
        self.schedules["warm-up"].step()
        self.schedules["cycle"].step()
        if self.run.at_epoch_end:
            self.schedules["epochs"].step()
        return loss


class Counters:
    """The best score so far, and checks without a better one."""

    def __init__(self) -> None:
        self.best, self.bad = 0.0, 0

    def state_dict(self) -> dict[str, Any]:
        return vars(self).copy()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        vars(self).update(state)


class Averaged(Training):
    """An averaged model, a scaler with overflows, the best model so far, and an early stop."""

    MOST_BAD: ClassVar[int] = 5

    def make(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
        self.counters = Counters()

    def known(self) -> dict[str, Any]:
        more = {"ema": self.average, "scaler": self.scaler, "counters": self.counters}
        return super().known() | more

    def step(self, batch: Batch) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = loss_of(self.model, batch)
        self.scaler.scale(loss).backward()
        if self.run.step % 8 == 6:  # an overflow: this update is skipped
            self.model.head.bias.grad.fill_(float("inf"))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.average.update_parameters(self.model)
        return loss

    def train(self) -> None:
        self.run.restore()
        if self.counters.bad < self.MOST_BAD:
            for batch in self.run:
                report(self.run.step + 1, self.step(batch), self.scaler.get_scale(), batch[2])
                self.look(self.run.step + 1)
                if self.counters.bad == self.MOST_BAD:
                    break
        self.run.close()
        write_durably(self.args.out / "averaged.pt", self.average.module.state_dict())

    def look(self, step: int) -> None:
        """Score the model: that of step 6 is the best, and nothing later gets better."""
        if step % 2:
            return
        score = 1.0 - abs(step - 6) / STEPS
        self.counters.bad += score <= self.counters.best
        if score > self.counters.best:
            self.counters.best = score
            write_durably(self.args.out / "best.pt", {"step": step, "model": self.model.state_dict()})


class Gan(Training):
    """A maker and its critic, with an optimizer each and forwards between their updates."""

    def make(self) -> None:
        self.critic = TinyNet()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.02)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=0.01)

    def known(self) -> dict[str, Any]:
        models = {"maker": self.model, "critic": self.critic}
        optimizers = {"maker-optimizer": self.optimizer, "critic-optimizer": self.critic_optimizer}
        return super().known() | {"model": models, "optimizer": optimizers}

    def step(self, batch: Batch) -> torch.Tensor:
        x, y, _ = batch
        judged = loss_of(self.critic, batch) + self.critic(x + self.model(x).detach()).pow(2).mean()
        self.critic_optimizer.zero_grad()
        judged.backward()
        self.critic_optimizer.step()
        loss = (self.critic(x + self.model(x)) - y).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


class Accumulated(Training):
    """Saves inside accumulation windows, with the gradients gathered so far."""

    WINDOW: ClassVar[int] = 3
    BATCHES: ClassVar[int] = 10
    """Between two saves: most of them fall inside a window."""

    def known(self) -> dict[str, Any]:
        return super().known() | {"accumulation": "capture"}

    def begin(self) -> None:
        done = self.run.restore()
        self.batches = done * self.WINDOW + self.run.micro_steps

    def train(self) -> None:
        for batch in self.run:
            loss = loss_of(self.model, batch) / self.WINDOW
            loss.backward()
            self.batches += 1
            if self.batches % self.WINDOW == 0:
                self.optimizer.step()
                self.optimizer.zero_grad()
                report(self.batches // self.WINDOW, loss, ids=batch[2])
            if self.batches % self.BATCHES == 0:
                self.run.save(wait=True)


class Workers(Training):
    """Noise is drawn in the workers of the loader, which fetch ahead."""

    def make(self) -> None:
        self.loader = DataLoader(Noisy(), BATCH, shuffle=True, num_workers=2)


class Streamed(Training):
    """An endless stream."""

    def make(self) -> None:
        self.loader = DataLoader(Endless(), BATCH)


class Stateful(Training):
    """The loader of torchdata, which keeps its own place."""

    def make(self) -> None:
        from torchdata.stateful_dataloader import StatefulDataLoader

        data = Samples()
        sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=0)
        self.loader = StatefulDataLoader(data, BATCH, sampler=sampler)

    def known(self) -> dict[str, Any]:
        return super().known() | {"steps": None, "epochs": 3}


class Blurred(Training):
    """Noisy as some accelerators are: no two runs agree to the last bit."""

    def make(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)

    def step(self, batch: Batch) -> torch.Tensor:
        self.optimizer.zero_grad()
        loss = loss_of(self.model, batch)
        loss.backward()
        source = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big"))
        for parameter in self.model.parameters():
            parameter.grad *= 1 + 1e-7 * torch.randn(parameter.shape, generator=source)
        self.optimizer.step()
        return loss


CASES: dict[str, type[Training]] = {
    "state": State,
    "swapped": Swapped,
    "frozen": Frozen,
    "schedules": Schedules,
    "averaged": Averaged,
    "gan": Gan,
    "accumulated": Accumulated,
    "workers": Workers,
    "stream": Streamed,
    "stateful": Stateful,
    "blurred": Blurred,
}


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--case", choices=CASES, required=True)
    cli.add_argument("--kill-at", type=int, default=-1)
    cli.add_argument("--batch", type=int, default=BATCH)
    args = cli.parse_args()
    seed_everything()
    CASES[args.case](args).train()


if __name__ == "__main__":
    main()
