"""The folder with the highest number is resumed from, though the Trainer was killed while filling it; with
``--keep 1`` the one before is deleted before the new one is on disk. The twin marks a folder that is complete and
synced, resumes from marked ones only, and deletes afterwards.

RB001, RB002, RB004 (huggingface/transformers).
"""

import shutil
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import parser, seed_everything
from saving import by_number, sync_tree
from toy_trainer import Regressor, Rows, arguments, newest, trainer
from transformers import TrainerCallback

MARK = "complete"


def complete(out: Path) -> list[Path]:
    """Return the folders that were saved and synced to the end, by number."""
    return [folder for folder in by_number(out, "checkpoint-*") if (folder / MARK).exists()]


class Careful(TrainerCallback):
    """Syncs and marks each checkpoint, then deletes those before the last two."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        out = Path(args.output_dir)
        folder = out / f"checkpoint-{state.global_step}"
        sync_tree(out)
        (folder / MARK).touch()
        sync_tree(folder)
        for old in complete(out)[:-2]:
            shutil.rmtree(old)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--keep", type=int, default=2, help="checkpoints that stay")
    args = made.parse_args()
    seed_everything()
    checkpoint: str | None = newest(args.out)
    if args.twin:
        checkpoint = str(complete(args.out)[-1]) if complete(args.out) else None
    more = {"save_total_limit": None if args.twin else args.keep}
    callbacks = [Careful()] if args.twin else []
    toy = trainer(arguments(args.out, **more), Regressor(), Rows(), callbacks=callbacks)
    toy.train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
