"""The last checkpoint of a finished run is stripped for inference, its optimizer and counters removed: starting
the finished run once more trains it all over again.

RB169 (ultralytics/ultralytics): epoch -1, no optimizer.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    SAVE_EVERY,
    STEPS,
    Samples,
    Stream,
    TinyNet,
    pack,
    parser,
    read_whole,
    report,
    seed_everything,
    unpack,
    update,
    write_durably,
)


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    path = args.out / "last.pt"
    step = 0
    if path.exists():
        state = read_whole(path)
        if state is None:
            sys.exit(f"{path}: damaged checkpoint; nothing was trained")
        if state["step"] >= 0:
            step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            write_durably(path, pack(step, **parts))
    if not args.twin:
        write_durably(path, {"step": -1, "model": model.state_dict()})


if __name__ == "__main__":
    main()
