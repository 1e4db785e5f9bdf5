"""An iterable data set without length is read in several passes. The restart skips within one pass only, runs
into its end and reads the set from its first sample again.

RB104 (huggingface/transformers).
"""

import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, seed_everything
from torch.utils.data import IterableDataset
from toy_trainer import Regressor, Rows, arguments, newest, trainer


class Passes(IterableDataset[dict[str, torch.Tensor]]):
    """Streams the rows in order, once a pass, or for ever."""

    def __init__(self, *, endless: bool) -> None:
        self.endless = endless

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        rows = [Rows()[index] for index in range(len(Rows()))]
        return cycle(rows) if self.endless else iter(rows)


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    rows = Passes(endless=args.twin)
    chosen = arguments(args.out)
    checkpoint = newest(args.out)
    if not (checkpoint and checkpoint.endswith(f"checkpoint-{chosen.max_steps}")):
        trainer(chosen, Regressor(), rows).train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
