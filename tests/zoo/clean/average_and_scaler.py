"""Right. Averaged weights with their update count and a loss scaler that skips steps are saved and restored."""

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
    loss_of,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    write_durably,
)
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet(norm=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.8), use_buffers=True)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler, "average": average, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        scaler.scale(loss).backward()
        if step % 8 == 6:  # an overflow: this update is skipped
            model.head.bias.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        average.update_parameters(model)
        step += 1
        report(step, loss, scaler.get_scale(), batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))
    write_durably(args.out / "averaged.pt", average.module.state_dict())


if __name__ == "__main__":
    main()
