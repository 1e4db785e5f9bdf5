"""A warm-up followed by a decay is rebuilt with only the outer counter restored: the inner schedules start over.

RB056 (pytorch/pytorch): SequentialLR built with last_epoch=N starts with its first part.
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
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    warmup = LinearLR(optimizer, start_factor=0.2, total_iters=5)
    decay = CosineAnnealingLR(optimizer, T_max=STEPS - 5)
    schedule = SequentialLR(optimizer, [warmup, decay], milestones=[5])
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        if not args.twin:
            fresh = schedule.state_dict()
            state["schedule"]["_schedulers"] = fresh["_schedulers"]
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        rate = optimizer.param_groups[0]["lr"]
        loss = update(model, optimizer, batch)
        schedule.step()
        step += 1
        report(step, loss, rate, batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
