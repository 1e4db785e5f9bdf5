"""A resumed attempt stores its own step count instead of the run's: the first restart is right, the second
one believes in a counter that is too low and the run gets longer.

RB186 (bghira/SimpleTuner), RB119 (NguyenJus/custom-sam-peft): the counter and the state disagree.
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
    store = Checkpoints(args.out, checked=False)
    start = 0
    if state := store.newest():
        start = unpack(state, **parts)
    for step in range(start + 1, STEPS + 1):
        batch = next(stream)
        loss = update(model, optimizer, batch)
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            counter = step if args.twin else step - start
            store.save(step, pack(counter, **parts))


if __name__ == "__main__":
    main()
