"""The restart skips as many batches as there were optimizer steps, though each step took two: recently seen
samples come again.

RB112 (EleutherAI/gpt-neox), RB110 (huggingface/transformers).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    SAMPLES,
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        batches_done = step * (2 if args.twin else 1)
        epoch, done = divmod(batches_done * BATCH, SAMPLES)
        stream.load_state_dict({"epoch": epoch, "position": done})
    while step < STEPS:
        optimizer.zero_grad()
        for batch in (next(stream), next(stream)):
            loss = loss_of(model, batch) / 2
            loss.backward()
        optimizer.step()
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
