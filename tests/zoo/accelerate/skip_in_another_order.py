"""skip_first_batches leaves out the right number of batches of another permutation than the one trained on: the
default sampler shuffles from the global stream. The twin's sampler is seeded by epoch.

RB096 (huggingface/accelerate).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from accelerate import Accelerator, DataLoaderConfiguration, skip_first_batches
from common import BATCH, SAVE_EVERY, STEPS, Samples, TinyNet, loss_of, parser, report, seed_everything
from torch.utils.data import DataLoader


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    choices = DataLoaderConfiguration(use_seedable_sampler=args.twin)
    accelerator = Accelerator(cpu=True, dataloader_config=choices)
    net = TinyNet(dropout=0.0)
    adamw = torch.optim.AdamW(net.parameters(), lr=0.02)
    data = DataLoader(Samples(), BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(net, adamw, data)

    step = 0
    found = sorted(args.out.glob("step-*"))
    if found:
        accelerator.load_state(found[-1])
        step = int(found[-1].name.removeprefix("step-"))

    per_epoch = len(loader)
    while step < STEPS:
        epoch, done = divmod(step, per_epoch)
        loader.set_epoch(epoch)
        batches = skip_first_batches(loader, done) if done else loader
        for batch in batches:
            loss = loss_of(model, batch)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            step += 1
            report(step, loss, 0.02, batch[2])
            if step % SAVE_EVERY == 0:
                partial = args.out / "partial"
                accelerator.save_state(partial)
                partial.rename(args.out / f"step-{step:06d}")
            if step == STEPS:
                break


if __name__ == "__main__":
    main()
