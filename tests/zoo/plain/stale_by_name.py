"""The newest checkpoint is taken to be the last by name, where step-8 sorts behind step-12 and step-20.

RB016 (NVIDIA-NeMo/Automodel), RB181 (deepspeedai/DeepSpeed): another save was loaded than the newest.
"""

import re
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
    found = sorted(args.out.glob("step-*.pt"))
    if args.twin:
        found.sort(key=lambda path: int(re.sub(r"\D", "", path.name)))
    step = 0
    if found:
        try:
            state = torch.load(found[-1], weights_only=True)
        except (RuntimeError, EOFError) as error:
            sys.exit(f"{found[-1]}: damaged checkpoint: {error}")
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            write_durably(args.out / f"step-{step}.pt", pack(step, **parts))


if __name__ == "__main__":
    main()
