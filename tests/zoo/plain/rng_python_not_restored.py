"""Python's random module decides which features are masked, and its state is never saved.

RB090 (vllm-project/speculators): data, optimizer and schedule restored, random states left out.
"""

import random
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
        fresh = random.getstate()
        step = unpack(state, **parts)
        if not args.twin:
            random.setstate(fresh)
    while step < STEPS:
        x, y, ids = next(stream)
        x[:, random.randrange(x.shape[1])] = 0.0
        loss = update(model, optimizer, (x, y, ids))
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], ids)
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
