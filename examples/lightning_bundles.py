"""Lightning with an ordinary DataLoader, workers, random augmentation and validation, kept as bundles.

    python examples/lightning_bundles.py --out runs/lightning

Two lines make it exact: the callback, and ``bundles.loader``. Compare with lightning_plain.py.
"""

import argparse
import logging
import warnings
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import EarlyStopping
from torch import nn
from torch.utils.data import DataLoader, Dataset

from samestep.integrations.lightning import Bundles

BATCH, SAMPLES, FEATURES, EPOCHS = 4, 32, 16, 3
# Lightning is chatty about accelerators and workers; what it says about checkpoints stays visible.
logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message=".*does not have many workers.*")


class Noisy(Dataset):
    """Adds noise to every sample."""

    def __init__(self, seed):
        source = torch.Generator().manual_seed(seed)
        self.inputs = torch.randn(SAMPLES, FEATURES, generator=source)
        self.targets = self.inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.inputs[index] + 0.1 * torch.randn(FEATURES), self.targets[index]


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def training_step(self, batch):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.network(inputs), targets)
        print(f"step {self.global_step + 1} loss {loss.item():.9g}")
        return loss

    def validation_step(self, batch):
        inputs, targets = batch
        self.log("validation", nn.functional.mse_loss(self.network(inputs), targets))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=1.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "validation"}}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    seed_everything(0, verbose=False)

    # Steps are shorter here than a save in the background: what a kill leaves would differ from time to time.
    bundles = Bundles(args.out / "bundles", save=3, asynchronous=False)
    trainer = Trainer(
        default_root_dir=args.out,
        max_epochs=EPOCHS,
        accelerator="cpu",
        callbacks=[EarlyStopping("validation", patience=9), bundles],
        enable_checkpointing=False,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = DataLoader(Noisy(seed=11), batch_size=BATCH, shuffle=True, num_workers=args.workers)
    trainer.fit(Regression(), bundles.loader(loader), DataLoader(Noisy(seed=12), batch_size=8))


if __name__ == "__main__":
    main()
