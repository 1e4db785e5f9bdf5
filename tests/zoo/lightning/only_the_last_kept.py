"""One checkpoint is kept and none is synced: Lightning renames the new file into place and deletes the old one, and a
loss of power soon after leaves a name without content. The twin syncs before anything is deleted, and takes the newest
that loads.

RB009, RB010 (Lightning-AI/pytorch-lightning).
"""

import logging
import pickle
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import lightning.pytorch as pl
import torch
from common import BATCH, Batch, Samples, TinyNet, loss_of, parser, report, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from saving import sync_tree
from torch.utils.data import DataLoader


class Net(pl.LightningModule):
    """The tiny network as a LightningModule that prints its steps."""

    def __init__(self) -> None:
        super().__init__()
        self.net = TinyNet(dropout=0.0)

    def training_step(self, batch: Batch, index: int) -> torch.Tensor:
        loss = loss_of(self.net, batch)
        report(self.global_step + 1, loss, 0.02, batch[2])
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.02)


class Careful(ModelCheckpoint):
    """Syncs a new file before it goes on to delete the old one."""

    def _save_checkpoint(self, trainer: pl.Trainer, filepath: str) -> None:
        super()._save_checkpoint(trainer, filepath)
        sync_tree(Path(filepath).parent)


def loads(path: Path) -> bool:
    """Tell whether a checkpoint can be read."""
    try:
        torch.load(path, weights_only=False)
    except (OSError, RuntimeError, EOFError, LookupError, ValueError, pickle.UnpicklingError) as error:
        print(f"{path}: damaged, set aside ({error})", file=sys.stderr)
        return False
    return True


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    loader = DataLoader(Samples(), BATCH)
    kind = Careful if args.twin else ModelCheckpoint
    saving = kind(args.out, filename="{step:06d}", every_n_epochs=1, save_top_k=1)
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=4,
        logger=False,
        callbacks=[saving],
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    found = [path for path in args.out.glob("*.ckpt") if not args.twin or loads(path)]
    newest = max(found, default=None)
    trainer.fit(Net(), loader, ckpt_path=newest, weights_only=False)


if __name__ == "__main__":
    main()
