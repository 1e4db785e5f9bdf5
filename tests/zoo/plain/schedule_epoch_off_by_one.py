"""The rate falls per epoch. The checkpoint at the end of an epoch is written before the schedule's epoch step,
and the restart begins with the next epoch: one fall is missing for good.

RB067 (Lightning-AI/pytorch-lightning).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
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
from torch.optim.lr_scheduler import MultiStepLR


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = MultiStepLR(optimizer, milestones=[1, 2, 3], gamma=0.5)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        rate = optimizer.param_groups[0]["lr"]
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, rate, batch[2])
        ended = stream.position == 0
        if ended and args.twin:
            schedule.step()
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))
        if ended and not args.twin:
            schedule.step()


if __name__ == "__main__":
    main()
