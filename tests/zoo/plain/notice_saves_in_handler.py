"""The SIGTERM handler saves at once, wherever the loop stands: in the middle of a step the weights are those after
the update and the counters those before it.

No single public report; handlers that call save themselves.
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
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)

    def on_notice(number: int, _frame: object) -> None:
        if args.twin:
            noticed.append(number)
        else:
            store.save(step, pack(step, **parts))
            sys.exit(0)

    signal.signal(signal.SIGTERM, on_notice)
    while step < STEPS and not noticed:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        report(step + 1, loss, optimizer.param_groups[0]["lr"], batch[2])
        step += 1
        if step % SAVE_EVERY == 0 or noticed:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
