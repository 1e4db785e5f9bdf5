"""Only the parameters are saved: the running statistics of batch normalisation start over.

No single public report; the shape of every checkpoint made from `named_parameters()`. Training losses never
show it, answers of the model do.
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


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet(norm=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    parts = {"optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        model.load_state_dict(state["model"], strict=args.twin)
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            weights = model.state_dict() if args.twin else dict(model.named_parameters())
            weights = {name: value.detach() for name, value in weights.items()}
            store.save(step, pack(step, **parts) | {"model": weights})
    write_durably(args.out / "model.pt", model.state_dict())


if __name__ == "__main__":
    main()
