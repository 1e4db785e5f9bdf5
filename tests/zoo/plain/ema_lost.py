"""The averaged weights are not saved: after a restart they begin as a copy of the current weights.

RB057 (ultralytics/yolov5): averaging restarted with every resume. Losses never show it.
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
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    step = 0
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    state = store.newest()
    if state:
        step = unpack(state, **parts)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    if args.twin:
        parts["average"] = average
        if state:
            average.load_state_dict(state["average"])
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
