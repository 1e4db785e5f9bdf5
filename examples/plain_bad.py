"""A plain PyTorch loop with the defects that are met most often. It restarts, and is not the same run.

python examples/plain_bad.py --out runs/plain
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, SAVE_EVERY, BATCH, SAMPLES, FEATURES = 3, 4, 8, 80, 16


def make_loader():
    source = torch.Generator().manual_seed(11)
    inputs = torch.randn(SAMPLES, FEATURES, generator=source)
    targets = inputs.cumsum(dim=1).sin().mean(dim=1, keepdim=True)
    return DataLoader(TensorDataset(inputs, targets), batch_size=BATCH, shuffle=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    checkpoint = out / "last.pt"
    torch.manual_seed(0)

    loader = make_loader()
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.1), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * len(loader))
    first_epoch = step = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        first_epoch, step = state["epoch"], state["step"]

    for epoch in range(first_epoch, EPOCHS):
        for inputs, targets in loader:
            if step >= EPOCHS * len(loader):
                return
            loss = nn.functional.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            step += 1
            print(f"step {step} loss {loss.item():.9g}")
            if step % SAVE_EVERY == 0:
                torch.save({"model": model.state_dict(), "epoch": epoch, "step": step}, checkpoint)


if __name__ == "__main__":
    main()
