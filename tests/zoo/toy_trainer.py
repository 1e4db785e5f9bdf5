"""Toy parts for the scripts that train with the Trainer of transformers."""

from __future__ import annotations

import os
from pathlib import Path  # noqa: TC003
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
from common import BATCH, SAMPLES, SAVE_EVERY, Samples, TinyNet, report
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

EPOCHS = 4  # a run that ends in the middle of an epoch is a case of its own


class Regressor(nn.Module):
    """The tiny network with its loss, as the Trainer wants it; remembers what it saw for the step line."""

    def __init__(self, *, dropout: float = 0.2) -> None:
        super().__init__()
        self.net = TinyNet(dropout=dropout)
        self.last_loss = torch.zeros(())
        self.last_ids = torch.zeros(0)

    def forward(self, x: torch.Tensor, labels: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the loss and the predictions (batch, 1)."""
        logits = self.net(x)
        loss = nn.functional.mse_loss(logits, labels)
        if self.training:
            self.last_loss, self.last_ids = loss.detach(), ids
        return {"loss": loss, "logits": logits}


class Rows(Dataset[dict[str, torch.Tensor]]):
    """The fixed samples as dictionaries."""

    def __init__(self) -> None:
        self.samples = Samples()

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x, y, i = self.samples[index]
        return {"x": x, "labels": y, "ids": i}


class StepLines(TrainerCallback):
    """Prints the line of every step."""

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Print step, loss and sample ids."""
        model = kwargs["model"]
        rate = kwargs["optimizer"].param_groups[0]["lr"]
        report(state.global_step, model.last_loss, rate, model.last_ids)


def arguments(out: Path, **more: Any) -> TrainingArguments:
    """Return small, quiet training arguments on the CPU; `more` replaces or adds."""
    chosen: dict[str, Any] = {
        "output_dir": str(out),
        "max_steps": EPOCHS * SAMPLES // BATCH,
        "per_device_train_batch_size": BATCH,
        "learning_rate": 0.02,
        "save_steps": SAVE_EVERY,
        "save_total_limit": 2,
        "logging_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "remove_unused_columns": False,
    }
    return TrainingArguments(**(chosen | more))


def trainer(args: TrainingArguments, model: nn.Module, data: Any, **more: Any) -> Trainer:
    """Return a Trainer that prints its steps."""
    callbacks = [StepLines(), *more.pop("callbacks", [])]
    return Trainer(model=model, args=args, train_dataset=data, callbacks=callbacks, **more)


def newest(out: Path) -> str | None:
    """Return the checkpoint folder that the framework itself would pick, None where there is none."""
    return get_last_checkpoint(str(out)) if out.is_dir() else None
