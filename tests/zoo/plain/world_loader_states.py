"""Every data rank stores its own place in the data. With fewer ranks places are dropped, with more there are none
and those ranks read from the start, both in silence. The twin refuses. One process plays all ranks.

RB138 (pytorch/torchtitan).
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
    cli = parser(__doc__)
    cli.add_argument("--ranks", type=int, default=2)
    args = cli.parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    streams = [Stream(Samples(), batch=2, seed=rank) for rank in range(args.ranks)]
    parts = {"model": model, "optimizer": optimizer}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        if args.twin and len(state["ranks"]) != args.ranks:
            sys.exit(f"{args.ranks} ranks: the checkpoint has {len(state['ranks'])}; nothing was trained")
        step = unpack(state, **parts)
        for place, stream in zip(state["ranks"], streams, strict=False):
            stream.load_state_dict(place)
    while step < STEPS:
        shards = [next(stream) for stream in streams]
        batch = tuple(torch.cat(column) for column in zip(*shards, strict=True))
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            ranks = [stream.state_dict() for stream in streams]
            store.save(step, pack(step, **parts) | {"ranks": ranks})


if __name__ == "__main__":
    main()
