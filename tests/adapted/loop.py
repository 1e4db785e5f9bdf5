"""Scripts of the zoo that train with Accelerate, moved to the adapter: one case each."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))

import torch
from accelerate import Accelerator, DataLoaderConfiguration
from common import BATCH, SAVE_EVERY, STEPS, Batch, Samples, TinyNet, loss_of, parser, report, seed_everything
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader

import samestep


class Noisy(Samples):
    """Adds noise from the global stream."""

    def __getitem__(self, index: int) -> Batch:
        x, y, number = super().__getitem__(index)
        return x + torch.randn(x.shape) / 10, y, number


class Counter:
    """Something that the script has registered."""

    def __init__(self) -> None:
        self.seen = 0

    def state_dict(self) -> dict[str, int]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.seen = state["seen"]


CASES = ("noise", "workers", "prepared", "seedable", "accumulated", "lora")


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--case", choices=CASES, required=True)
    cli.add_argument("--kill-at", type=int, default=-1)
    args = cli.parse_args()
    case = args.case
    seed_everything()
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=4 if case == "accumulated" else 1,
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=case == "seedable"),
    )
    net: torch.nn.Module = TinyNet()
    if case == "lora":
        net = get_peft_model(net, LoraConfig(r=2, target_modules=["body"], lora_dropout=0.1))
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.02)
    loader = DataLoader(Noisy(), BATCH, shuffle=True, num_workers=2 if case == "workers" else 0)
    if case in ("prepared", "seedable"):
        loader = accelerator.prepare(loader)
    model, optimizer = accelerator.prepare(net, optimizer)
    counter = Counter()
    accelerator.register_for_checkpointing(counter)
    given = None if case in ("prepared", "seedable") else loader
    adapter = samestep.integrations.accelerate
    steps = STEPS // 2 if case == "accumulated" else STEPS
    run = adapter.run(accelerator, args.out, data=given, steps=steps, save=SAVE_EVERY, asynchronous=False)
    for batch in run:
        if run.step == args.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        with accelerator.accumulate(model):
            loss = loss_of(model, batch)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        counter.seen += 1
        report(run.step + 1, loss, counter.seen, batch[2])


if __name__ == "__main__":
    main()
