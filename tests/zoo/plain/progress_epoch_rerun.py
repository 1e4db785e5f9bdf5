"""The step counter continues while the interrupted epoch is run again from its first batch: steps end too high.

RB119 (NguyenJus/custom-sam-peft).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    SAMPLES,
    SAVE_EVERY,
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
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    per_epoch = SAMPLES // BATCH
    if state and not args.twin:
        stream.load_state_dict({"epoch": stream.epoch, "position": 0})
    for epoch in range(stream.epoch, 3):
        for _ in range(stream.position // BATCH, per_epoch):
            batch = next(stream)
            loss = update(model, optimizer, batch)
            step += 1
            report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
            if step % SAVE_EVERY == 0 or step == 3 * per_epoch:
                store.save(step, pack(step, **parts) | {"epoch": epoch})


if __name__ == "__main__":
    main()
