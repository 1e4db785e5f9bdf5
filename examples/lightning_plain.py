"""Lightning with an ordinary DataLoader, saving in the middle of epochs: it restarts, and is not the same run.

    python examples/lightning_plain.py --out runs/lightning

Nothing here looks wrong. The loader cannot say where it stood, and no random generator is in the file.
Compare with lightning_stateful.py.
"""

import argparse
import logging
import warnings
from pathlib import Path

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, SAMPLES, FEATURES = 4, 48, 16
# Lightning is chatty about accelerators and workers; what it says about checkpoints stays visible.
logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message=".*does not have many workers.*")


class Regression(LightningModule):
    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))

    def training_step(self, batch):
        inputs, targets = batch
        loss = nn.functional.mse_loss(self.network(inputs), targets)
        print(f"step {self.global_step + 1} loss {loss.item():.9g}")
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def make_loader():
    source = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    targets = inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)
    return DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    seed_everything(0, verbose=False)

    saving = ModelCheckpoint(dirpath=out, every_n_train_steps=5, save_top_k=-1, save_last=True)
    trainer = Trainer(
        default_root_dir=out,
        max_steps=20,
        accelerator="cpu",
        callbacks=[saving],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), make_loader(), ckpt_path="last")


if __name__ == "__main__":
    main()
