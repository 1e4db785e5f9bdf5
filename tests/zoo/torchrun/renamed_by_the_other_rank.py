"""A rank that has written its own file renames the folder while rank 0 still writes the model into it. The twin waits
for all ranks, then rank 0 syncs and renames.

RB030, RB029 (huggingface/transformers), RB121 (axolotl-ai-cloud/axolotl), RB039 (NVIDIA-NeMo/Automodel).
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    SAVE_EVERY,
    STEPS,
    Samples,
    Stream,
    TinyNet,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)
from saving import by_number, fresh, publish
from torch.distributed import barrier
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    net = TinyNet()
    torch.manual_seed(rank)  # every rank drops other units
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    stream = Stream(Samples(), batch=2, seed=rank)
    step = 0
    if found := by_number(args.out, "step-*"):
        shared = torch.load(found[-1] / "model.pt", weights_only=True)
        unpack(shared, model=net, optimizer=optimizer)
        step = unpack(torch.load(found[-1] / f"rank{rank}.pt", weights_only=True), stream=stream)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, rank, batch[2])
        if step % SAVE_EVERY == 0:
            folder, final = args.out / "partial", args.out / f"step-{step}"
            if rank == 0:
                fresh(folder)
            barrier()
            torch.save(pack(step, stream=stream), folder / f"rank{rank}.pt")
            inside = folder if args.twin else final
            if not args.twin:
                barrier()
                if rank == 1:
                    folder.rename(final)
                time.sleep(0.05)
            if rank == 0:
                torch.save(pack(step, model=net, optimizer=optimizer), inside / "model.pt")
            barrier()
            if args.twin and rank == 0:
                publish(folder, final)
            barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
