"""Any folder whose name is a number counts as a checkpoint, the one that is being written too. The twin writes it
under another name first.

RB013 (vllm-project/speculators), RB016 (NVIDIA-NeMo/Automodel).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import parser
from saving import State, by_number, fresh, publish, train


def main() -> None:
    args = parser(__doc__).parse_args()

    def save(step: int, state: State) -> None:
        final = args.out / str(step)
        folder = fresh(args.out / "partial" if args.twin else final)
        torch.save(state.pop("model"), folder / "model.pt")
        torch.save(state, folder / "training.pt")
        if args.twin:
            publish(folder, final)

    def newest() -> State | None:
        found = by_number(args.out, "[0-9]*")
        if not found:
            return None
        state: State = torch.load(found[-1] / "training.pt", weights_only=True)
        return state | {"model": torch.load(found[-1] / "model.pt", weights_only=True)}

    train(save, newest)


if __name__ == "__main__":
    main()
