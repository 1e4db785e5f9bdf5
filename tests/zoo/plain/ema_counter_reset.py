"""The average is restored and its update count is not: the next update copies the raw weights over it.

RB168 (ultralytics/yolov5): updates = 0 on resume.
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
    write_durably,
)
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8))
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "average": average, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        if not args.twin:
            average.n_averaged.zero_()
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        average.update_parameters(model)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))
    write_durably(args.out / "averaged.pt", average.module.state_dict())


if __name__ == "__main__":
    main()
