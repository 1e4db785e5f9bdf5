"""A layer is frozen for some steps in every epoch; while it is frozen its moments are left out of the
checkpoint, and after a restart it thaws with fresh ones.

RB046 (pytorch/pytorch): the states of frozen parameters vanish on load.
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


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        frozen = step % 6 in (3, 4)
        model.body.requires_grad_(not frozen)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            state = pack(step, **parts)
            if frozen and not args.twin:
                for index in (0, 1):
                    del state["optimizer"]["state"][index]
            store.save(step, state)


if __name__ == "__main__":
    main()
