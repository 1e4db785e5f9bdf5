"""A chain of elif restores a single random stream: torch's comes back, NumPy's, which draws the augmentation,
does not.

RB078 (huggingface/accelerate).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
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
    restore_rng,
    rng_state,
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
        fresh = rng_state()
        step = unpack(state, **parts)
        if not args.twin:
            restore_rng(fresh | {"torch": state["rng"]["torch"]})
    while step < STEPS:
        x, y, ids = next(stream)
        x = x + torch.from_numpy(np.random.normal(scale=0.1, size=x.shape)).float()  # noqa: NPY002
        loss = update(model, optimizer, (x, y, ids))
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], ids)
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
