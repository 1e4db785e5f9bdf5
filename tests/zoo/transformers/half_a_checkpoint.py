"""A checkpoint without scheduler.pt (or optimizer.pt) is resumed all the same: with a fresh optimizer and a fresh
schedule, at the right step, without a word. The twin looks at the folder first.

RB040 (huggingface/transformers).
"""

import json
import sys
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, seed_everything
from safetensors import SafetensorError
from safetensors.torch import load_file
from toy_trainer import Regressor, Rows, arguments, newest, trainer


def refuse_unless_whole(folder: Path) -> None:
    """Load every part once; name the first that is missing or damaged."""
    readers = {
        "model.safetensors": load_file,
        "optimizer.pt": partial(torch.load, weights_only=True),
        "scheduler.pt": partial(torch.load, weights_only=True),
        "rng_state.pth": partial(torch.load, weights_only=False),
        "trainer_state.json": lambda path: json.loads(path.read_text()),
    }
    for name, read in readers.items():
        try:
            read(folder / name)
        except (OSError, RuntimeError, EOFError, ValueError, SafetensorError) as error:
            sys.exit(f"{folder / name}: missing or damaged ({error}); nothing was trained")


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    checkpoint = newest(args.out)
    if checkpoint and args.twin:
        refuse_unless_whole(Path(checkpoint))
    trainer(arguments(args.out), Regressor(), Rows()).train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
