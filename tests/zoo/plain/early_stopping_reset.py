"""Patience counts from zero after every restart, so the run goes on longer than the uninterrupted one.

RB157 (huggingface/transformers) in a plain loop.
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
    bad_checks = 0
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        if args.twin:
            bad_checks = state["bad_checks"]
    while step < STEPS and bad_checks < 5:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % 2 == 0 and step > 6:  # a metric that gets no better from step 6 on
            bad_checks += 1
        if step % SAVE_EVERY == 0 or bad_checks == 5:
            store.save(step, pack(step, **parts) | {"bad_checks": bad_checks})


if __name__ == "__main__":
    main()
