"""Weights and optimizer lie in two files; where the optimizer's is missing the run goes on with a fresh one.

RB040 (huggingface/transformers) in a plain loop.
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
    side = Checkpoints(args.out / "optimizer")
    step = 0
    if state := store.newest():
        step = unpack(state, model=model, stream=stream)
        moments = side.at(step)
        if moments:
            unpack(moments, optimizer=optimizer)
        elif args.twin:
            sys.exit(f"{side.path(step)}: missing or damaged; nothing was trained")
        else:
            print("no optimizer state found", file=sys.stderr)
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
