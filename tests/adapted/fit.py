"""Scripts of the zoo that train with Lightning, moved to the adapter: one case each."""

from __future__ import annotations

import logging
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))

import lightning.pytorch as pl
import torch
from common import BATCH, SAVE_EVERY, Batch, Samples, TinyNet, loss_of, parser, report, seed_everything
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader, IterableDataset

from samestep.integrations.lightning import Bundles


class Net(pl.LightningModule):
    """The tiny network as a LightningModule that prints its steps."""

    def __init__(self, kill_at: int) -> None:
        super().__init__()
        self.net = TinyNet()
        self.kill_at = kill_at

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        if self.global_step == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = loss_of(self.net, batch)
        report(self.global_step + 1, loss, 0.02, batch[2])
        return loss

    def validation_step(self, batch: Batch, index: int) -> None:
        self.log("validation", loss_of(self.net, batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.02)


class Gan(Net):
    """Two optimizers, stepped by hand."""

    def __init__(self, kill_at: int) -> None:
        super().__init__(kill_at)
        self.other = TinyNet()
        self.automatic_optimization = False

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        loss = super().training_step(batch, index)
        for optimizer, net in zip(self.optimizers(), (self.net, self.other), strict=True):
            optimizer.zero_grad()
            self.manual_backward(loss_of(net, batch))
            optimizer.step()
        return loss

    def configure_optimizers(self) -> Any:
        return [torch.optim.AdamW(net.parameters(), lr=0.02) for net in (self.net, self.other)]


class Noisy(Samples):
    """Adds noise from the global stream."""

    def __getitem__(self, index: int) -> Batch:
        x, y, number = super().__getitem__(index)
        return x + torch.randn(x.shape) / 10, y, number


class Passes(IterableDataset[Batch]):
    """Streams the samples in order."""

    def __iter__(self) -> Any:
        return (Samples()[index] for index in range(len(Samples())))


class Hooked(pl.LightningDataModule):
    """Makes its loader when Lightning asks for it."""

    def __init__(self, bundles: Bundles) -> None:
        super().__init__()
        self.bundles = bundles

    def train_dataloader(self) -> Any:
        return self.bundles.loader(DataLoader(Noisy(), BATCH, shuffle=True))


def given(case: str, bundles: Bundles) -> Any:
    if case == "datamodule":
        return Hooked(bundles)
    if case == "unwrapped":
        return DataLoader(Samples(), BATCH)
    if case == "stream":
        return bundles.loader(DataLoader(Passes(), BATCH))
    workers = 2 if case == "workers" else 0
    return bundles.loader(DataLoader(Noisy(), BATCH, shuffle=True, num_workers=workers))


CASES: dict[str, dict[str, Any]] = {
    "noise": {},
    "workers": {},
    "accumulated": {"accumulate_grad_batches": 2, "max_epochs": 6},
    "validated": {"val_check_interval": 3},
    "stopped": {"callbacks": [EarlyStopping("validation", min_delta=1e9, patience=2)]},
    "gan": {},
    "stream": {},
    "datamodule": {},
    "unwrapped": {},
}


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--case", choices=CASES, required=True)
    cli.add_argument("--kill-at", type=int, default=-1)
    args = cli.parse_args()
    seed_everything()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    bundles = Bundles(args.out / "bundles", save=SAVE_EVERY, asynchronous=False)
    more = dict(CASES[args.case])
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_epochs=more.pop("max_epochs", 4),
        logger=False,
        callbacks=[*more.pop("callbacks", []), bundles],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **more,
    )
    data = given(args.case, bundles)
    validation = DataLoader(Samples(), BATCH) if args.case in ("validated", "stopped") else None
    net = (Gan if args.case == "gan" else Net)(args.kill_at)
    if isinstance(data, Hooked):
        trainer.fit(net, datamodule=data)
    else:
        trainer.fit(net, data, validation)


if __name__ == "__main__":
    main()
