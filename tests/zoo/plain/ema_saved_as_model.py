"""The checkpoint is written during validation, while the averaged weights stand in for the model's own: the
restart trains on from the average.

RB165 (atomistic-machine-learning/schnetpack).
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
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        average.update_parameters(model)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            state = pack(step, **parts)
            if not args.twin:
                state["model"] = average.module.state_dict()
            store.save(step, state)
    write_durably(args.out / "averaged.pt", average.module.state_dict())


if __name__ == "__main__":
    main()
