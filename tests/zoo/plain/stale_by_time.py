"""The newest checkpoint is taken to be the last written. The older one is rewritten after each save, to mark it
as kept, and so wins.

RB019 (huggingface/transformers): selection and rotation go by number here, by time there.
"""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    SAVE_EVERY,
    STEPS,
    Samples,
    Stream,
    TinyNet,
    pack,
    parser,
    read_whole,
    report,
    seed_everything,
    unpack,
    update,
    write_durably,
)


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    found = sorted(args.out.glob("ckpt-*.pt"))
    if not args.twin:
        found.sort(key=lambda path: path.stat().st_mtime_ns)
    step = 0
    if found:
        state = read_whole(found[-1])
        if state is None:
            sys.exit(f"{found[-1]}: damaged checkpoint; nothing was trained")
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            write_durably(args.out / f"ckpt-{step:06d}.pt", pack(step, **parts))
            earlier = args.out / f"ckpt-{step - SAVE_EVERY:06d}.pt"
            if earlier.exists():
                os.utime(earlier)


if __name__ == "__main__":
    main()
