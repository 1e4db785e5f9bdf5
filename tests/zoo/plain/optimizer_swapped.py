"""Optimizer state is matched by position: the restarted process lists two layers of equal shape in the other
order, and each continues with the moments of its neighbour.

RB043 (pytorch/pytorch).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    FEATURES,
    SAVE_EVERY,
    STEPS,
    Checkpoints,
    Samples,
    Stream,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)
from torch import nn


class Pair(nn.Module):
    """Two blocks of equal shape in a row and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(FEATURES, FEATURES)
        self.second = nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.second(torch.tanh(self.first(x)))))


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = Pair()
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    state = store.newest()
    layers = [model.first, model.second, model.head]
    if state and not args.twin:
        layers = [model.second, model.first, model.head]
    optimizer = torch.optim.Adam([p for layer in layers for p in layer.parameters()], lr=0.02)
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    step = unpack(state, **parts) if state else 0
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
