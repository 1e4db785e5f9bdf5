"""Lightning done right: a loader that knows its place, the random generators in the file, a save when told to go.

    python examples/lightning_stateful.py --out runs/lightning

Compare with lightning_plain.py: the loader is a StatefulDataLoader, one callback keeps the generators, another saves
on SIGTERM, and a checkpoint that cannot be read is set aside for an older one.
"""

import argparse
import logging
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.utilities.exceptions import SIGTERMException
from torch import nn
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

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


class RandomGenerators(Callback):
    """Keeps Python's, NumPy's and torch's generators in every checkpoint."""

    def __init__(self):
        self.loaded = None

    def state_dict(self):
        kind, keys, *rest = np.random.get_state()
        return {
            "python": random.getstate(),
            "numpy": [kind, keys.tolist(), *rest],
            "torch": torch.get_rng_state(),
        }

    def load_state_dict(self, state):
        self.loaded = state

    def on_train_batch_start(self, *_):
        # As late as possible: setting up the loader draws from the generators too.
        if self.loaded is None:
            return
        random.setstate(self.loaded["python"])
        np.random.set_state(tuple(self.loaded["numpy"]))
        torch.set_rng_state(self.loaded["torch"])
        self.loaded = None


class SaveWhenToldToGo(Callback):
    """Saves on SIGTERM: Lightning stops after the batch, and leaves without a save."""

    def on_exception(self, trainer, _module, exception):
        if isinstance(exception, SIGTERMException):
            trainer.save_checkpoint(Path(trainer.default_root_dir) / f"step={trainer.global_step:06d}.ckpt")


def make_loader():
    source = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    targets = inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)
    return StatefulDataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)


def newest_whole(folder):
    checkpoints = sorted(folder.glob("step=*.ckpt"), reverse=True)
    for path in checkpoints:
        try:
            state = torch.load(path, weights_only=False)
            if missing := {"optimizer_states", "lr_schedulers", "callbacks", "loops"} - state.keys():
                raise ValueError(f"without {', '.join(sorted(missing))}")
            if path.name != f"step={state['global_step']:06d}.ckpt":
                raise ValueError(f"holds step {state['global_step']}")
        except Exception as error:
            print(f"{path} cannot be resumed ({error}); trying an older one", file=sys.stderr)
            continue
        return path
    if checkpoints:
        sys.exit(f"no checkpoint in {folder} can be resumed; the newest is {checkpoints[0]}")
    return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    seed_everything(0, verbose=False)

    saving = ModelCheckpoint(dirpath=out, filename="{step:06d}", every_n_train_steps=5, save_top_k=-1)
    trainer = Trainer(
        default_root_dir=out,
        max_steps=20,
        accelerator="cpu",
        callbacks=[RandomGenerators(), saving, SaveWhenToldToGo()],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Regression(), make_loader(), ckpt_path=newest_whole(out))


if __name__ == "__main__":
    main()
