"""A loop on several gloo ranks, moved to ``samestep.Run``. It starts its ranks itself, so that one argument changes how
many there are: every rank drops other units and reads its own share of the samples."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "zoo"))

import torch
from common import SAVE_EVERY, STEPS, Batch, Samples, TinyNet, parser, report, seed_everything, update
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import samestep


class Noisy(Samples):
    """Adds noise from the global stream."""

    def __getitem__(self, index: int) -> Batch:
        x, y, number = super().__getitem__(index)
        return x + torch.randn(x.shape) / 10, y, number


def start_ranks(count: int) -> None:
    """Become the launcher of this many ranks."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    os.execv(sys.executable, [*launcher, *sys.argv])


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--ranks", type=int, default=2)
    cli.add_argument("--transfer", action="store_true", help="let the number of ranks change")
    cli.add_argument("--kill-at", type=int, default=-1)
    args = cli.parse_args()
    if "RANK" not in os.environ:
        start_ranks(args.ranks)
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    seed_everything()
    net = TinyNet()
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    run = samestep.Run(
        args.out,
        model=model,
        optimizer=optimizer,
        data=DataLoader(Noisy(), batch_size=2, shuffle=True),
        steps=STEPS,
        save=SAVE_EVERY,
        asynchronous=False,
        transfer=args.transfer,
    )
    torch.manual_seed(rank)
    for batch in run:
        if run.step == args.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = update(model, optimizer, batch)
        report(run.step + 1, loss, rank, batch[2])
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
