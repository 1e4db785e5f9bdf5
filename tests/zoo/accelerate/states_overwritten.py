"""`save_state` writes into one folder again and again, file by file: an interruption leaves the weights of one save
with the optimizer of another. The twin fills a fresh folder and renames it.

RB006 (pytorch/pytorch): the only checkpoint is overwritten in place.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from accelerate import Accelerator
from common import SAVE_EVERY, STEPS, Samples, Stream, TinyNet, loss_of, parser, report, seed_everything
from saving import by_number, fresh, publish


class Progress:
    """The step count, saved like any other part."""

    def __init__(self) -> None:
        self.step = 0

    def state_dict(self) -> dict[str, int]:
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.step = state["step"]


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    accelerator = Accelerator(cpu=True)
    net = TinyNet()
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.02))
    stream, progress = Stream(Samples()), Progress()
    accelerator.register_for_checkpointing(stream, progress)
    if found := by_number(args.out, "step-*") if args.twin else [*args.out.glob("state")]:
        accelerator.load_state(found[-1])
    while progress.step < STEPS:
        batch = next(stream)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        progress.step += 1
        report(progress.step, loss, 0.02, batch[2])
        if progress.step % SAVE_EVERY == 0 and args.twin:
            accelerator.save_state(fresh(args.out / "partial"))
            publish(args.out / "partial", args.out / f"step-{progress.step}")
        elif progress.step % SAVE_EVERY == 0:
            accelerator.save_state(args.out / "state")


if __name__ == "__main__":
    main()
