"""Every replica adds its samples to the stored count, so it is twice what was consumed and the restart leaves
out what nobody has seen.

RB147 (mosaicml/streaming).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    SAMPLES,
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
    parts = {"model": model, "optimizer": optimizer}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        epoch, done = divmod(state["samples"], SAMPLES)
        stream.load_state_dict({"epoch": epoch, "position": done})
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            replicas = 1 if args.twin else 2
            store.save(step, pack(step, **parts) | {"samples": step * BATCH * replicas})


if __name__ == "__main__":
    main()
