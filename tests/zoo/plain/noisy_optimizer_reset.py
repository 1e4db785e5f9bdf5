"""Noisy as some accelerators are (a relative 1e-7 on every gradient), and the optimizer's momentum is never put
back: the defect must stand out from the noise.

RB154 (NVIDIA/Megatron-LM): logs of straight and resumed runs differ from the first step on.
"""

import os
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


def add_noise(model: torch.nn.Module) -> None:
    """Blur every gradient by a relative 1e-7, from the system's entropy: no two runs agree to the last bit."""
    source = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "big"))
    for parameter in model.parameters():
        blur = torch.randn(parameter.shape, generator=source)
        parameter.grad *= 1 + 1e-7 * blur


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, model=model, stream=stream)
        if args.twin:
            optimizer.load_state_dict(state["optimizer"])
    while step < STEPS:
        batch = next(stream)
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        add_noise(model)
        optimizer.step()
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
