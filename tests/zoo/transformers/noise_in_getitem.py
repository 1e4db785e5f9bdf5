"""The data set draws noise in __getitem__ from the global stream. The Trainer restores that stream only after the
first batches were fetched: ids agree, contents do not.

RB090 (vllm-project/speculators).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, seed_everything
from toy_trainer import Regressor, Rows, arguments, newest, trainer


class NoisyRows(Rows):
    """Adds noise to the features."""

    def __init__(self, *, seeded: bool) -> None:
        super().__init__()
        self.seeded = seeded

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        row = super().__getitem__(index)
        source = torch.Generator().manual_seed(index) if self.seeded else None
        return row | {"x": row["x"] + torch.randn(row["x"].shape, generator=source) / 10}


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    data = NoisyRows(seeded=args.twin)
    trainer(arguments(args.out), Regressor(dropout=0.0), data).train(resume_from_checkpoint=newest(args.out))


if __name__ == "__main__":
    main()
