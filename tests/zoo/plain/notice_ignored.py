"""The preemption notice (SIGTERM) ends the loop in good order and saves nothing, so all steps since the last
periodic save are lost although there was time.

No single public report; handlers that only exit.
"""

import signal
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
    noticed = []
    signal.signal(signal.SIGTERM, lambda number, _frame: noticed.append(number))
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS and not noticed:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0 or (noticed and args.twin):
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
