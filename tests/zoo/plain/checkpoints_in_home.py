"""All checkpoints go to a cache below the home folder, the durable folder gets the logs: a new machine has
nothing to resume from and begins again.

No single public report; RB037 (EleutherAI/gpt-neox) is the per-node form.
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
    store = Checkpoints(args.out if args.twin else Path.home() / ".cache" / "my-run")
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    args.out.mkdir(parents=True, exist_ok=True)
    with (args.out / "log.txt").open("a") as log:
        while step < STEPS:
            batch = next(stream)
            loss = update(model, optimizer, batch)
            step += 1
            report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
            print(step, loss.item(), file=log, flush=True)
            if step % SAVE_EVERY == 0:
                store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
