"""torch.distributed.checkpoint syncs its metadata file while that is still empty, then writes it: for half a minute
after `save` a loss of power leaves it so. The twin syncs the folder itself before it gives it its name.

RB013 (vllm-project/speculators), RB016 (NVIDIA-NeMo/Automodel): the newest name is not a safe choice.
"""

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed.checkpoint as dcp
from common import TinyNet, parser, write_durably
from saving import State, by_number, fresh, publish, train

warnings.filterwarnings("ignore", module="torch.distributed")  # one process on purpose


def main() -> None:
    args = parser(__doc__).parse_args()

    def save(step: int, state: State) -> None:
        final = args.out / f"step-{step}"
        folder = fresh(args.out / "partial")
        write_durably(folder / "rest.pt", {key: state[key] for key in state.keys() - {"model"}})
        dcp.save({"model": state["model"]}, checkpoint_id=folder)
        if args.twin:
            publish(folder, final)
        else:
            folder.rename(final)

    def newest() -> State | None:
        found = by_number(args.out, "step-*")
        if not found:
            return None
        state: State = torch.load(found[-1] / "rest.pt", weights_only=True)
        offered = {"model": TinyNet().state_dict()}
        dcp.load(offered, checkpoint_id=found[-1])
        return state | offered

    train(save, newest)


if __name__ == "__main__":
    main()
