"""The cosine is rebuilt from the step count on an optimizer whose groups hold the base rate: its recursion
starts from there, and all later rates are too high.

RB055, RB054 (pytorch/pytorch).
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
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    state = store.newest()
    step = unpack(state, **parts) if state else 0
    if state and not args.twin:
        for group in optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        schedule = CosineAnnealingLR(optimizer, T_max=STEPS, last_epoch=step)
    else:
        schedule = CosineAnnealingLR(optimizer, T_max=STEPS)
        if state:
            schedule.load_state_dict(state["schedule"])
            optimizer.load_state_dict(state["optimizer"])
    parts["schedule"] = schedule
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
