"""A checkpoint that cannot be read counts as none: training begins again without a word and overwrites it.

RB005 (huggingface/transformers) and RB016 (NVIDIA-NeMo/Automodel): what a loader does with a damaged file.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import SAVE_EVERY, STEPS, Samples, Stream, TinyNet
from common import pack, parser, read_whole, report, seed_everything, unpack, update, write_durably


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
        if state:
            step = unpack(state, **parts)
        elif args.twin:
            sys.exit(f"{path}: damaged checkpoint; nothing was trained")
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            write_durably(path, pack(step, **parts))


if __name__ == "__main__":
    main()
