"""To make room, the old checkpoint is deleted before the new one is written. The twin deletes it afterwards.

RB023 (bghira/SimpleTuner), RB022 (huggingface/transformers): a limit of one that leaves none.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, write_durably
from saving import State, train


def main() -> None:
    args = parser(__doc__).parse_args()

    def files() -> list[Path]:
        return sorted(args.out.glob("step-*.pt"))

    def save(step: int, state: State) -> None:
        old = files()
        if not args.twin:
            for path in old:
                path.unlink()
        write_durably(args.out / f"step-{step:06d}.pt", state)
        if args.twin:
            for path in old:
                path.unlink()

    def newest() -> State | None:
        return torch.load(files()[-1], weights_only=True) if files() else None

    train(save, newest)


if __name__ == "__main__":
    main()
