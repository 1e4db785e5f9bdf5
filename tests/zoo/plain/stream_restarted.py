"""An endless stream has no position of its own: every restart reads it from its first sample.

RB104 (huggingface/transformers) and RB150 (huggingface/datasets) in a plain loop.
"""

import sys
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    SAMPLES,
    SAVE_EVERY,
    STEPS,
    Batch,
    Checkpoints,
    Samples,
    TinyNet,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)
from torch.utils.data import DataLoader, IterableDataset


class Endless(IterableDataset[Batch]):
    """Reads the samples round and round, from any count on."""

    def __init__(self, data: Samples) -> None:
        self.data, self.start = data, 0

    def __iter__(self) -> Iterator[Batch]:
        for number in count(self.start):
            yield self.data[number % len(self.data)]


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    source = Endless(Samples(SAMPLES * 4))
    loader = DataLoader(source, BATCH, generator=torch.Generator().manual_seed(0))
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    parts = {"model": model, "optimizer": optimizer}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        source.start = step * BATCH if args.twin else 0
    for number, batch in enumerate(islice(loader, STEPS - step), step + 1):
        loss = update(model, optimizer, batch)
        report(number, loss, optimizer.param_groups[0]["lr"], batch[2])
        if number % SAVE_EVERY == 0:
            store.save(number, pack(number, **parts))


if __name__ == "__main__":
    main()
