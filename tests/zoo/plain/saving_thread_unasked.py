"""A thread saves; nobody asks it whether that went well, and the old checkpoint is deleted when it is done. On a full
disk the run goes on to its end without any. The twin asks.

RB024, RB023 (bghira/SimpleTuner).
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser, write_durably
from saving import State, train


def main() -> None:
    args = parser(__doc__).parse_args()
    saver = ThreadPoolExecutor(1)

    def files() -> list[Path]:
        return sorted(args.out.glob("step-*.pt"))

    def save(step: int, state: State) -> None:
        old = files()
        future = saver.submit(write_durably, args.out / f"step-{step:06d}.pt", state)
        if args.twin:
            future.result()
        saver.submit(lambda: [path.unlink() for path in old]).result()

    def newest() -> State | None:
        return torch.load(files()[-1], weights_only=True) if files() else None

    train(save, newest)


if __name__ == "__main__":
    main()
