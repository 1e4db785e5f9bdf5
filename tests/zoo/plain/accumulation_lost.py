"""A save in the middle of an accumulation window loses the gradients gathered so far.

RB155 (huggingface/transformers): the next update rests on a part of its window only.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
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

WINDOW = 3
SAVE_EVERY_BATCHES = 10  # not a multiple of the window: most saves fall inside one


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    batches = 0
    if state := store.newest():
        batches = unpack(state, **parts)
        if args.twin:
            for parameter, gradient in zip(model.parameters(), state["gradients"], strict=True):
                parameter.grad = gradient
    while batches < STEPS * WINDOW:
        batch = next(stream)
        loss = loss_of(model, batch) / WINDOW
        loss.backward()
        batches += 1
        if batches % WINDOW == 0:
            optimizer.step()
            optimizer.zero_grad()
            report(batches // WINDOW, loss, optimizer.param_groups[0]["lr"], batch[2])
        if batches % SAVE_EVERY_BATCHES == 0:
            gradients = [parameter.grad for parameter in model.parameters()]
            store.save(batches, pack(batches, **parts) | {"gradients": gradients})


if __name__ == "__main__":
    main()
