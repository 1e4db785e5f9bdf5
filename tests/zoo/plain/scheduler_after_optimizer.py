"""The schedule is built after the optimizer was loaded, so its constructor rewrites the restored rate.

RB053 (pytorch/pytorch): with LinearLR every later rate is wrong too, since each follows from the last.
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
from torch.optim.lr_scheduler import LinearLR


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    state = store.newest()
    if state and not args.twin:
        optimizer.load_state_dict(state["optimizer"])
    schedule = LinearLR(optimizer, start_factor=0.2, total_iters=STEPS)
    step = 0
    if state:
        if args.twin:
            optimizer.load_state_dict(state["optimizer"])
        step = unpack(state, model=model, schedule=schedule, stream=stream)
    while step < STEPS:
        batch = next(stream)
        rate = optimizer.param_groups[0]["lr"]
        loss = update(model, optimizer, batch)
        schedule.step()
        step += 1
        report(step, loss, rate, batch[2])
        if step % SAVE_EVERY == 0:
            parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "stream": stream}
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
