"""The loader's state taken on the last batch of an epoch says "exhausted", while the trainer has moved on to the
next epoch: that epoch gets no batch at all.

RB133 (verl-project/verl).
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
    if state := store.newest():
        step = unpack(state, **parts)
        first_epoch = state["epoch"]
        if state["loader"] is not None:
            sampler.set_epoch(first_epoch)
            loader.load_state_dict(state["loader"])
    per_epoch = len(data) // BATCH
    for epoch in range(first_epoch, 3):
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = update(model, optimizer, batch)
            step += 1
            report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
            ended = step % per_epoch == 0
            if step % SAVE_EVERY == 0 or step == 3 * per_epoch:
                place = None if ended and args.twin else loader.state_dict()
                store.save(step, pack(step, **parts) | {"loader": place, "epoch": epoch + ended})


if __name__ == "__main__":
    main()
