"""Scripts of the zoo that train with the Trainer of transformers, moved to the adapter: one case each."""

from __future__ import annotations

import os
import signal
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))

import torch
from common import parser, seed_everything
from peft import LoraConfig, get_peft_model
from torch.utils.data import IterableDataset
from toy_trainer import Regressor, Rows, arguments, trainer
from transformers import EarlyStoppingCallback, TrainerCallback

from samestep.integrations.transformers import Bundles


class NoisyRows(Rows):
    """Adds noise from the global stream."""

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = super().__getitem__(index)
        return row | {"x": row["x"] + torch.randn(row["x"].shape) / 10}


class Passes(IterableDataset[dict[str, torch.Tensor]]):
    """Streams the rows in order, once a pass."""

    def __iter__(self) -> Any:
        return iter([Rows()[index] for index in range(len(Rows()))])


class Endless(Passes):
    def __iter__(self) -> Any:
        return cycle(super().__iter__())


class Ending(TrainerCallback):
    """Kills the process after a step."""

    def __init__(self, step: int) -> None:
        self.steps = {step}

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step in self.steps:
            os.kill(os.getpid(), signal.SIGKILL)


def lora() -> torch.nn.Module:
    model = Regressor()
    model.net = get_peft_model(model.net, LoraConfig(r=2, target_modules=["body"], lora_dropout=0.1))
    return model


def patience() -> dict[str, Any]:
    """The threshold lets no evaluation count as better than the first."""
    stopping = EarlyStoppingCallback(early_stopping_patience=7, early_stopping_threshold=1e9)
    return {"callbacks": [stopping], "eval_dataset": Rows()}


CASES: dict[str, tuple[dict[str, Any], Any, Any, Any]] = {
    "noise": (
        {"gradient_accumulation_steps": 2, "max_steps": 12, "save_steps": 2},
        NoisyRows,
        Regressor,
        dict,
    ),
    "workers": ({"dataloader_num_workers": 2}, NoisyRows, Regressor, dict),
    "patience": (
        {"eval_strategy": "steps", "eval_steps": 2, "metric_for_best_model": "loss"},
        Rows,
        Regressor,
        patience,
    ),
    "skip_ignored": ({"ignore_data_skip": True}, Rows, Regressor, dict),
    "mid_epoch": ({"max_steps": 20}, Rows, Regressor, dict),
    "stream": ({}, Passes, Regressor, dict),
    "endless": ({}, Endless, Regressor, dict),
    "lora": ({}, Rows, lora, dict),
}
"""Of each case more arguments, the data, the model, and more for the Trainer."""


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--case", choices=CASES, required=True)
    cli.add_argument("--kill-at", type=int, default=-1)
    cli.add_argument("--arguments", nargs="*", default=[], help="NAME=NUMBER, for the TrainingArguments")
    cli.add_argument("--forget", action="store_true", help="train without resuming")
    args = cli.parse_args()
    seed_everything()
    more, data, model, others = CASES[args.case]
    given = {name: int(value) for name, value in (pair.split("=") for pair in args.arguments)}
    bundles = Bundles(args.out / "bundles")
    kept = others()
    callbacks = [*kept.pop("callbacks", []), Ending(args.kill_at), bundles]
    chosen = arguments(args.out / "trainer", **(more | given))
    made = trainer(chosen, model(), data(), callbacks=callbacks, **kept)
    made.train(resume_from_checkpoint=None if args.forget else bundles.resume(made))


if __name__ == "__main__":
    main()
