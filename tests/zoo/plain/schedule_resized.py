"""A one-cycle schedule is sized by the steps that this attempt still has to do, not by those of the run.

RB068 (Lightning-AI/pytorch-lightning): a half-way resume draws another rate curve.
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
from torch.optim.lr_scheduler import OneCycleLR


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    state = store.newest()
    remaining = STEPS - state["step"] if state and not args.twin else STEPS
    schedule = OneCycleLR(optimizer, max_lr=0.05, total_steps=remaining + 1)
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    if args.twin:
        parts["schedule"] = schedule
    step = unpack(state, **parts) if state else 0
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
