"""Right. LBFGS evaluates a closure several times inside one step: gradients are made within `step(closure)`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    SAVE_EVERY,
    STEPS,
    Batch,
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
    model = TinyNet(dropout=0.0)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=4)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)

        def closure(batch: Batch = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
