"""The file that was written last is resumed from, half-written or not. The twin takes the newest that loads.

RB002 (huggingface/transformers) asks for this fallback, RB016 (NVIDIA-NeMo/Automodel).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, read_whole
from saving import State, sync, train


def main() -> None:
    args = parser(__doc__).parse_args()

    def save(step: int, state: State) -> None:
        args.out.mkdir(parents=True, exist_ok=True)
        path = args.out / f"step-{step:06d}.pt"
        torch.save(state, path)
        if args.twin:
            sync(path)
            sync(args.out)

    def newest() -> State | None:
        found = sorted(
            args.out.glob("*.pt"), key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True
        )
        if args.twin:
            return next((state for path in found if (state := read_whole(path))), None)
        return torch.load(found[0], weights_only=True) if found else None

    train(save, newest)


if __name__ == "__main__":
    main()
