"""The position is computed from the step count and the batch size of this start: restarted with another batch size
the run skips or repeats samples and says nothing. The twin refuses.

RB108 (huggingface/transformers) in a plain loop.
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
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--batch", type=int, default=BATCH)
    args = cli.parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples(), batch=args.batch)
    parts = {"model": model, "optimizer": optimizer}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        if args.twin and state["batch"] != args.batch:
            sys.exit(
                f"batch size {args.batch}: the checkpoint was trained with {state['batch']}; nothing was trained"
            )
        step = unpack(state, **parts)
        epoch, done = divmod(step * args.batch, SAMPLES)
        stream.load_state_dict({"epoch": epoch, "position": done})
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts) | {"batch": args.batch})


if __name__ == "__main__":
    main()
