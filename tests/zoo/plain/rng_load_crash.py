"""The checkpoint holds a NumPy random state that the safe loader refuses: every restart dies with a traceback.

RB079 (huggingface/transformers), RB081 (allenai/open-instruct).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
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
    path = args.out / "last.pt"
    step = 0
    if path.exists():
        state = read_whole(path) if args.twin else torch.load(path, weights_only=True)
        if state is None:
            sys.exit(f"{path}: damaged checkpoint; nothing was trained")
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            state = pack(step, **parts)
            if not args.twin:
                state["rng"]["numpy"] = np.random.get_state()  # noqa: NPY002
            write_durably(path, state)


if __name__ == "__main__":
    main()
