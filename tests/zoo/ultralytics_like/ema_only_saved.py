"""Only a half-precision copy of the averaged weights is saved; model and average both start from it.

RB162 (Megvii-BaseDetection/YOLOX); RB169 is its end: the last file is stripped and cannot be resumed.
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
        if not args.twin:
            raw = {name: value.float() for name, value in state["ema"].items()}
            state["model"] = raw
            state["average"] = average.state_dict() | {f"module.{name}": value for name, value in raw.items()}
            state["average"]["n_averaged"] = torch.tensor(state["step"])
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        average.update_parameters(model)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            state = pack(step, **parts)
            if not args.twin:
                del state["model"], state["average"]
                state["ema"] = {name: value.half() for name, value in average.module.state_dict().items()}
            store.save(step, state)


if __name__ == "__main__":
    main()
