"""The right number of batches is skipped, in another permutation: the shuffle comes from the global stream,
which stands elsewhere when the restarted process shuffles.

RB101 (wyim-pgl/transgenic), a measured case of RB096: some samples come twice, as many never.
"""

import sys
from itertools import islice
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    SAVE_EVERY,
    STEPS,
    Checkpoints,
    Samples,
    TinyNet,
    pack,
    parser,
    permutation,
    report,
    seed_everything,
    unpack,
    update,
)
from torch.utils.data import DataLoader


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    data = Samples()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, model=model, optimizer=optimizer)
    per_epoch = len(data) // BATCH
    while step < STEPS:
        epoch, done = divmod(step, per_epoch)
        order = permutation(len(data), 0, epoch) if args.twin else torch.randperm(len(data)).tolist()
        loader = DataLoader(data, BATCH, sampler=order, generator=torch.Generator().manual_seed(0))
        for batch in islice(loader, done, STEPS - epoch * per_epoch):
            loss = update(model, optimizer, batch)
            step += 1
            report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
            if step % SAVE_EVERY == 0:
                store.save(step, pack(step, model=model, optimizer=optimizer))


if __name__ == "__main__":
    main()
