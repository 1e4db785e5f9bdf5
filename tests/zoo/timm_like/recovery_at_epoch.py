"""A recovery file from the middle of an epoch names the epoch only: the restart begins that epoch again, its
schedule is rebuilt from the epoch number and its random state is that of the start.

RB118 (huggingface/diffusers) has the same shape; timm's in-epoch recovery files work like this.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    SAMPLES,
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
from torch.optim.lr_scheduler import CosineAnnealingLR


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = CosineAnnealingLR(optimizer, T_max=4)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream, "schedule": schedule}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        if not args.twin:
            stream.load_state_dict({"epoch": state["epoch"], "position": 0})
            step = state["epoch"] * (SAMPLES // BATCH)
    while step < STEPS:
        epoch = stream.epoch
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if stream.epoch > epoch:
            schedule.step()
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts) | {"epoch": stream.epoch})


if __name__ == "__main__":
    main()
