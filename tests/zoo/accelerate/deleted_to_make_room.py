"""With automatic names and `total_limit=1`, accelerate deletes the old folder before it writes the new one. The twin
names its folders itself and deletes afterwards.

RB023 (bghira/SimpleTuner).
"""

import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration
from common import SAVE_EVERY, STEPS, Samples, Stream, TinyNet, loss_of, parser, report, seed_everything
from saving import by_number, fresh, publish


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    settings = ProjectConfiguration(str(args.out), automatic_checkpoint_naming=not args.twin, total_limit=1)
    accelerator = Accelerator(cpu=True, project_config=settings)
    net = TinyNet()
    model, optimizer = accelerator.prepare(net, torch.optim.AdamW(net.parameters(), lr=0.02))
    stream = Stream(Samples())
    accelerator.register_for_checkpointing(stream)
    folder = args.out / "checkpoints"
    step = 0
    if found := by_number(folder, "checkpoint_*"):
        accelerator.load_state(found[-1])
        saves = int(found[-1].name.removeprefix("checkpoint_")) + 1
        step = saves * SAVE_EVERY
        accelerator.project_configuration.iteration = saves
    while step < STEPS:
        batch = next(stream)
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        report(step, loss, 0.02, batch[2])
        if step % SAVE_EVERY == 0 and args.twin:
            old = by_number(folder, "checkpoint_*")
            accelerator.save_state(fresh(folder / "partial"))
            publish(folder / "partial", folder / f"checkpoint_{step // SAVE_EVERY - 1}")
            for path in old:
                shutil.rmtree(path)
        elif step % SAVE_EVERY == 0:
            folder.mkdir(parents=True, exist_ok=True)
            accelerator.save_state()


if __name__ == "__main__":
    main()
