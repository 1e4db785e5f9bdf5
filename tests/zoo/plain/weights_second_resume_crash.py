"""Each save wraps the names in one more prefix and each load removes one; a resumed attempt wraps twice, so
the first restart works and the second one dies.

RB143 (pytorch/torchtitan): the second resume of a compiled model fails.
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
    prefix = "_orig_mod."
    step = 0
    if state := store.newest():
        state["model"] = {name.removeprefix(prefix): value for name, value in state["model"].items()}
        step = unpack(state, **parts)
        if not args.twin:
            prefix *= 2
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            state = pack(step, **parts)
            state["model"] = {prefix + name: value for name, value in state["model"].items()}
            store.save(step, state)


if __name__ == "__main__":
    main()
