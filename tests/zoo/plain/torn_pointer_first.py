"""The file that names the newest checkpoint is written before that checkpoint. The twin moves it last.

RB016 (NVIDIA-NeMo/Automodel).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, write_durably
from saving import State, sync, train


def main() -> None:
    args = parser(__doc__).parse_args()
    pointer = args.out / "latest"

    def point_to(name: str) -> None:
        aside = args.out / "latest.tmp"
        aside.write_text(name)
        sync(aside)
        aside.replace(pointer)
        sync(args.out)

    def save(step: int, state: State) -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        name = f"step-{step:06d}.pt"
        if not args.twin:
            point_to(name)
        write_durably(args.out / name, state)
        if args.twin:
            point_to(name)

    def newest() -> State | None:
        return torch.load(args.out / pointer.read_text(), weights_only=True) if pointer.exists() else None

    train(save, newest)


if __name__ == "__main__":
    main()
