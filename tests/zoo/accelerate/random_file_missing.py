"""A missing or unreadable file of random states is noted at INFO level only; the run goes on with other dropout
masks. The twin looks first, and resumes from the checkpoint that its own run named last.

RB077 (huggingface/accelerate).
"""

import pickle
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from accelerate import Accelerator
from common import (
    BATCH,
    SAMPLES,
    SAVE_EVERY,
    STEPS,
    Samples,
    Stream,
    TinyNet,
    loss_of,
    parser,
    report,
    seed_everything,
)
from safetensors import SafetensorError


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    accelerator = Accelerator(cpu=True)
    net = TinyNet(dropout=0.5)
    adamw = torch.optim.AdamW(net.parameters(), lr=0.02)
    stream = Stream(Samples())
    model, optimizer = accelerator.prepare(net, adamw)
    step = 0
    found = sorted(args.out.glob("step-*"))
    if found:
        newest = args.out / (args.out / "latest").read_text() if args.twin else found[-1]
        try:
            if args.twin:
                torch.load(newest / "random_states_0.pkl", weights_only=False)
            accelerator.load_state(newest)
        except (
            OSError,
            RuntimeError,
            EOFError,
            ValueError,
            pickle.UnpicklingError,
            SafetensorError,
        ) as error:
            sys.exit(f"{newest}: missing or damaged part ({error}); nothing was trained")
        step = int(newest.name.removeprefix("step-"))
    stream.load_state_dict({"epoch": step * BATCH // SAMPLES, "position": step * BATCH % SAMPLES})
    while step < STEPS:
        batch = next(stream)
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
            (args.out / "latest").write_text(f"step-{step:06d}")


if __name__ == "__main__":
    main()
