"""Right. The warm-up starts at rate 0, so the first step changes no weight and weights alone do not tell the
state before it from the state after it.
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
from torch.optim.lr_scheduler import LambdaLR


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    schedule = LambdaLR(optimizer, lambda done: min(1.0, done / 6))
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
        schedule.step()
        step += 1
        report(step, loss, rate, batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
