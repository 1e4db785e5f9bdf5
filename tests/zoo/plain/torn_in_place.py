"""Every save writes over the only file: while it does, there is no checkpoint. The twin writes aside and renames.

RB006, RB008 (pytorch/pytorch).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, write_durably
from saving import State, train


def main() -> None:
    args = parser(__doc__).parse_args()
    last = args.out / "last.pt"

    def save(step: int, state: State) -> None:
        if args.twin:
            write_durably(last, state)
        else:
            last.parent.mkdir(parents=True, exist_ok=True)
            torch.save(state, last)

    def newest() -> State | None:
        return torch.load(last, weights_only=True) if last.exists() else None

    train(save, newest)


if __name__ == "__main__":
    main()
