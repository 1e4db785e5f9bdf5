"""Every rank writes its random state and its place in the data, and every rank reads those of rank 0.

RB144 (allenai/open-instruct), RB089 (NVlabs/Sana).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    SAVE_EVERY,
    STEPS,
    Checkpoints,
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
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    torch.manual_seed(0)
    net = TinyNet()
    torch.manual_seed(rank)  # every rank drops other units
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    stream = Stream(Samples(), batch=2, seed=rank)
    shared = Checkpoints(args.out)
    own = Checkpoints(args.out / f"rank{rank}")
    step = 0
    if state := shared.newest():
        step = unpack(state, model=net, optimizer=optimizer)
        source = own if args.twin else Checkpoints(args.out / "rank0")
        place = source.at(step)
        if place is None:
            sys.exit(f"{source.path(step)}: missing or damaged; nothing was trained")
        unpack(place, stream=stream)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, rank, batch[2])
        if step % SAVE_EVERY == 0:
            own.save(step, pack(step, stream=stream))
            torch.distributed.barrier()  # the shared file comes last: with it the save is whole
            if rank == 0:
                shared.save(step, pack(step, model=net, optimizer=optimizer))
            torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
