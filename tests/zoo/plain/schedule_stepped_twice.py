"""The loader advances the schedule and its caller advances it once more: every rate comes one step early.

RB065 (THUDM/slime).
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
from torch.optim.lr_scheduler import CosineAnnealingLR


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = CosineAnnealingLR(optimizer, T_max=STEPS)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        if not args.twin:
            schedule.step()
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
