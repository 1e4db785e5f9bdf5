"""A plain PyTorch loop that restarts as the same run, by samestep.Run.

    python examples/run_api.py --out runs/pilot

Start it again after an interruption, by whatever: it goes on with the step that it would have taken.
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import samestep

STEPS, SAVE_EVERY, BATCH, SAMPLES, FEATURES = 24, 4, 8, 80, 16


def make_loader():
    source = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    targets = inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)
    return DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True, help="folder, or s3://, gs:// or az:// URL")
    out = parser.parse_args().out
    torch.manual_seed(0)

    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)

    run = samestep.Run(
        out,
        model=model,
        optimizer=optimizer,
        schedule=schedule,
        data=make_loader(),
        steps=STEPS,
        save=SAVE_EVERY,
    )
    for inputs, targets in run:
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        run.log(loss=loss)


if __name__ == "__main__":
    main()
