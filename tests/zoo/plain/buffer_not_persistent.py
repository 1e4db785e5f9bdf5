"""A running centre that the forward subtracts is registered as a non-persistent buffer, so no checkpoint
holds it.

No single public report; `persistent=False` on a buffer that is state, not a constant.
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
    TinyNet,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)


class Centred(TinyNet):
    """Subtracts a running mean of its inputs."""

    def __init__(self, *, persistent: bool) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(FEATURES), persistent=persistent)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.centre.lerp_(x.mean(dim=0), 0.2)
        return super().forward(x - self.centre)


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = Centred(persistent=args.twin)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
