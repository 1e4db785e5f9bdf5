"""torch.distributed.checkpoint fills the tensors it is offered. A fresh Adam has none yet, so its moments are left
out in silence. The twin's getter makes the optimizer create them first.

RB041 (KempnerInstitute/KempnerForge).
"""

import sys
import warnings
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import torch.distributed.checkpoint as dcp
from common import (
    SAVE_EVERY,
    STEPS,
    Samples,
    Stream,
    TinyNet,
    pack,
    parser,
    read_whole,
    report,
    seed_everything,
    unpack,
    update,
    write_durably,
)
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

warnings.filterwarnings("ignore", module="torch.distributed")  # one process on purpose


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())

    def optimizer_state() -> dict[str, Any]:
        return get_optimizer_state_dict(model, optimizer) if args.twin else optimizer.state_dict()

    step = 0
    found = sorted(args.out.glob("step-*/meta.pt"))
    if found:
        meta = read_whole(found[-1])
        offered = {"model": model.state_dict(), "optimizer": optimizer_state()}
        try:
            dcp.load(offered, checkpoint_id=found[-1].parent)
        except CheckpointException as error:
            sys.exit(f"{found[-1].parent}: damaged checkpoint; nothing was trained: {error}")
        if meta is None:
            sys.exit(f"{found[-1]}: damaged checkpoint; nothing was trained")
        model.load_state_dict(offered["model"])
        if args.twin:
            set_optimizer_state_dict(model, optimizer, offered["optimizer"])
        else:
            optimizer.load_state_dict(offered["optimizer"])
        step = unpack(meta, stream=stream)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            folder = args.out / f"step-{step:06d}"
            state = {"model": model.state_dict(), "optimizer": optimizer_state()}
            dcp.save(state, checkpoint_id=folder)
            write_durably(folder / "meta.pt", pack(step, stream=stream))  # last: the folder is whole


if __name__ == "__main__":
    main()
