"""The weights go to the durable folder, the optimizer's state to the home folder of the machine: on a new
machine it is not there and the optimizer starts fresh.

Found with per-node state such as RB037 (EleutherAI/gpt-neox), where one node lacks what another wrote.
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
    parts = {"model": model, "stream": stream}
    store = Checkpoints(args.out)
    side = Checkpoints(args.out / "optimizer" if args.twin else Path.home() / ".cache" / "optimizer")
    step = 0
    if state := store.newest():
        moments = side.at(state["step"])
        if moments:
            unpack(moments, optimizer=optimizer)
        elif args.twin:
            sys.exit(f"{side.path(state['step'])}: missing or damaged; nothing was trained")
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            side.save(step, pack(step, optimizer=optimizer))
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
