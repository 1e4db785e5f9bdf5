"""The random states hold NumPy objects that the safe loader refuses; the error is caught and the run goes on.

RB079 (huggingface/transformers), RB080 (modelscope/ms-swift).
"""

import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
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
    restore_rng,
    rng_state,
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
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        fresh = rng_state()
        step = unpack(state, **parts)
        restore_rng(fresh)
        try:
            saved = torch.load(args.out / "rng" / f"{step}.pt", weights_only=True)
            torch.set_rng_state(saved["torch"])
            restore_rng(state["rng"])
        except pickle.UnpicklingError:
            print("random states could not be restored", file=sys.stderr)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            streams = {"torch": torch.get_rng_state(), "numpy": np.random.get_state()}  # noqa: NPY002
            if args.twin:
                del streams["numpy"]
            write_durably(args.out / "rng" / f"{step}.pt", streams)
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
