"""The mark that says a checkpoint is complete is made before its files are. The twin makes it last.

RB014 (NVIDIA-NeMo/Speech).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser
from saving import State, by_number, fresh, sync_tree, train


def main() -> None:
    args = parser(__doc__).parse_args()

    def save(step: int, state: State) -> None:
        folder = fresh(args.out / f"step-{step}")
        if not args.twin:
            (folder / "complete").touch()
        torch.save(state.pop("model"), folder / "model.pt")
        torch.save(state, folder / "training.pt")
        sync_tree(args.out)
        if args.twin:
            (folder / "complete").touch()
            sync_tree(folder)

    def newest() -> State | None:
        found = [folder for folder in by_number(args.out, "step-*") if (folder / "complete").exists()]
        if not found:
            return None
        state: State = torch.load(found[-1] / "training.pt", weights_only=True)
        return state | {"model": torch.load(found[-1] / "model.pt", weights_only=True)}

    train(save, newest)


if __name__ == "__main__":
    main()
