"""A file is renamed into place whose bytes were never synced: after a loss of power the name is there and they are
not. The twin syncs first.

RB031 (huggingface/transformers).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser
from saving import State, sync, train


def main() -> None:
    args = parser(__doc__).parse_args()

    def save(step: int, state: State) -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        aside = args.out / "writing.tmp"
        torch.save(state, aside)
        if args.twin:
            sync(aside)
        aside.replace(args.out / f"step-{step:06d}.pt")
        sync(args.out)

    def newest() -> State | None:
        found = sorted(args.out.glob("step-*.pt"))
        return torch.load(found[-1], weights_only=True) if found else None

    train(save, newest)


if __name__ == "__main__":
    main()
