"""The old checkpoint is deleted before the new one's name is synced: a storage that keeps no order among names may
keep the deletion and lose the name. The twin syncs the folder in between.

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
        aside, final = args.out / "writing.tmp", args.out / f"step-{step:06d}.pt"
        torch.save(state, aside)
        sync(aside)
        aside.replace(final)
        if args.twin:
            sync(args.out)
        for old in sorted(args.out.glob("step-*.pt"))[:-1]:
            old.unlink()

    def newest() -> State | None:
        found = sorted(args.out.glob("step-*.pt"))
        return torch.load(found[-1], weights_only=True) if found else None

    train(save, newest)


if __name__ == "__main__":
    main()
