"""Optimizer and schedule are loaded if their files are there, and start over in silence if not. The twin's folder gets
its name when all of them are.

RB040 (huggingface/transformers) loads in this way, RB004: one of its files comes last.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, write_durably
from saving import State, by_number, fresh, publish, train

OPTIONAL = ("optimizer", "schedule")


def main() -> None:
    args = parser(__doc__).parse_args()

    def save(step: int, state: State) -> None:
        final = args.out / f"step-{step}"
        folder = fresh(args.out / "partial" if args.twin else final)
        optional = {name: state.pop(name) for name in OPTIONAL}
        write_durably(folder / "model.pt", state)
        for name, part in optional.items():
            write_durably(folder / f"{name}.pt", part)
        if args.twin:
            publish(folder, final)

    def newest() -> State | None:
        found = by_number(args.out, "step-*")
        found = [folder for folder in found if (folder / "model.pt").exists()]
        if not found:
            return None
        state: State = torch.load(found[-1] / "model.pt", weights_only=True)
        files = {name: found[-1] / f"{name}.pt" for name in OPTIONAL}
        there = all(path.exists() for path in files.values())
        return state | {name: torch.load(path, weights_only=True) for name, path in files.items() if there}

    train(save, newest)


if __name__ == "__main__":
    main()
