"""The restarted script builds its optimizer over the trainable tensors only, after freezing a layer that was
trained before: the saved state has another size and the restart dies with a traceback.

RB048 (huggingface/peft): the trainable set differs after the adapter was loaded by hand.
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


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    state = store.newest()
    if state and not args.twin:
        model.body.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.02)
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    step = unpack(state, **parts) if state else 0
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
