"""The loader's state is set after its iterator was made, so it counts for the next epoch only and this one starts
over.

RB146 (mosaicml/streaming): load_state_dict without effect in the wrong order.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    SAVE_EVERY,
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
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    data = Samples()
    sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=0)
    own = torch.Generator().manual_seed(0)
    loader = StatefulDataLoader(data, BATCH, sampler=sampler, generator=own)
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    parts = {"model": model, "optimizer": optimizer}
    store = Checkpoints(args.out)
    step = first_epoch = 0
    place = None
    if state := store.newest():
        step = unpack(state, **parts)
        first_epoch, place = state["epoch"], state["loader"]
    per_epoch = len(data) // BATCH
    for epoch in range(first_epoch, 3):
        sampler.set_epoch(epoch)
        if place and args.twin:
            loader.load_state_dict(place)
        batches = iter(loader)
        if place and not args.twin:
            loader.load_state_dict(place)
        place = None
        for batch in batches:
            loss = update(model, optimizer, batch)
            step += 1
            report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
            ended = step % per_epoch == 0
            if step % SAVE_EVERY == 0 or step == 3 * per_epoch:
                now = None if ended else loader.state_dict()
                store.save(step, pack(step, **parts) | {"loader": now, "epoch": epoch + ended})


if __name__ == "__main__":
    main()
