"""The position counts what was fetched ahead, not what was trained on: after a restart the batches that waited in
the queue are never trained on.

RB135 (meta-pytorch/data): prefetched data is dropped.
"""

import sys
from collections import deque
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
    waiting = deque()
    while step < STEPS:
        while len(waiting) < 3:
            waiting.append((next(stream), stream.state_dict()))
        batch, place = waiting.popleft()
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            state = pack(step, **parts)
            if args.twin:
                state["stream"] = place
            store.save(step, state)


if __name__ == "__main__":
    main()
