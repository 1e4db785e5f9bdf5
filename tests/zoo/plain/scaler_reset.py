"""The loss scale of fp16 training starts at its initial value again, and its growth counter at 0.

RB072 (open-mmlab/mmcv), RB073 (pytorch/torchtitan): the scaler was missing from the saved state.
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
    loss_of,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
)


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    if args.twin:
        parts["scaler"] = scaler
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        scaler.scale(loss).backward()
        if step % 8 == 6:  # an overflow, as half precision has now and then: this update is skipped
            model.head.bias.grad.fill_(float("inf"))
        scaler.step(optimizer)
        scaler.update()
        step += 1
        report(step, loss, scaler.get_scale(), batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
