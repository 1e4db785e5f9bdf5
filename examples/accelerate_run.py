"""A loop on Accelerate with workers, random augmentation and gradient accumulation, kept by the run API.

    python examples/accelerate_run.py --out runs/accelerate

Two lines make it a run: ``samestep.integrations.accelerate.run`` and ``for batch in run``. Start it again after an
interruption and it goes on with the step that it would have taken. Compare with accelerate_loop.py.
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

from samestep.integrations import accelerate as samestep_accelerate

EPOCHS, BATCH, SAMPLES, FEATURES = 3, 4, 40, 16


class Noisy(Dataset):
    """Adds noise to every sample."""

    def __init__(self):
        source = torch.Generator().manual_seed(11)
        self.inputs = torch.randn(SAMPLES, FEATURES, generator=source)
        self.targets = self.inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return self.inputs[index] + 0.1 * torch.randn(FEATURES), self.targets[index]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    set_seed(0)

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * SAMPLES // BATCH // 2)
    loader = DataLoader(Noisy(), batch_size=BATCH, shuffle=True, num_workers=args.workers)
    model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)

    # Steps are shorter here than a save in the background: what a kill leaves would differ from time to time.
    run = samestep_accelerate.run(
        accelerator, args.out, data=loader, epochs=EPOCHS, save=3, asynchronous=False
    )
    for inputs, targets in run:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        accelerator.print(f"step {run.step + 1} loss {loss.item():.9g}")


if __name__ == "__main__":
    main()
