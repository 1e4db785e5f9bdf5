"""Loader workers add noise from their own random streams, which are seeded anew on every restart: the sample ids
agree, the contents do not.

RB090 (vllm-project/speculators): worker streams were left out of scope.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    FEATURES,
    SAVE_EVERY,
    STEPS,
    Batch,
    Checkpoints,
    EpochSampler,
    Samples,
    TinyNet,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)
from torch.utils.data import DataLoader


class Noisy(Samples):
    """Adds noise to the features in the worker that fetches them."""

    def __init__(self, *, seeded: bool) -> None:
        super().__init__()
        self.seeded = seeded
        self.epoch = 0

    def __getitem__(self, index: int) -> Batch:
        x, y, i = super().__getitem__(index)
        source = torch.Generator().manual_seed(100 * self.epoch + index) if self.seeded else None
        return x + torch.randn(FEATURES, generator=source) / 10, y, i


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    data = Noisy(seeded=args.twin)
    sampler = EpochSampler(len(data), seed=0)
    own = torch.Generator().manual_seed(0)
    loader = DataLoader(data, BATCH, sampler=sampler, num_workers=2, generator=own)
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    parts = {"model": model, "optimizer": optimizer}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    per_epoch = len(data) // BATCH
    while step < STEPS:
        data.epoch, done = divmod(step, per_epoch)
        sampler.start_at(data.epoch, done * BATCH)
        for batch in loader:
            loss = update(model, optimizer, batch)
            step += 1
            report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
            if step % SAVE_EVERY == 0:
                store.save(step, pack(step, **parts))
            if step == STEPS:
                break


if __name__ == "__main__":
    main()
