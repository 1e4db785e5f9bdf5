"""Everything is saved and Adam's moments are never put back: the optimizer starts fresh on every restart.

RB042 (NVIDIA-NeMo/Automodel): after a refactor the loaded optimizer state was never applied.
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
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, model=model, stream=stream)
        if args.twin:
            optimizer.load_state_dict(state["optimizer"])
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, model=model, optimizer=optimizer, stream=stream))


if __name__ == "__main__":
    main()
