"""The best metric so far is forgotten: the first evaluation after a restart counts as the best and replaces the
best model.

RB158, RB159 (huggingface/transformers) around the record of the best checkpoint.
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
    write_durably,
)


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    best = 0.0
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        if args.twin:
            best = state["best"]
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % 2 == 0:
            score = 1.0 - abs(step - 6) / STEPS  # the best model is that of step 6
            if score > best:
                best = score
                write_durably(args.out / "best.pt", {"step": step, "model": model.state_dict()})
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts) | {"best": best})


if __name__ == "__main__":
    main()
