"""The position is computed from the step count with this start's batch size: restarted with another one the run
trains on other samples after one warning line. The twin refuses.

RB108 (huggingface/transformers).
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import BATCH, parser, seed_everything
from toy_trainer import Regressor, Rows, arguments, newest, trainer


def main() -> None:
    cli = parser(__doc__)
    cli.add_argument("--batch", type=int, default=BATCH)
    args = cli.parse_args()
    seed_everything()
    checkpoint = newest(args.out)
    if checkpoint and args.twin:
        before = json.loads((Path(checkpoint) / "trainer_state.json").read_text())["train_batch_size"]
        if before != args.batch:
            sys.exit(
                f"batch size {args.batch}: the checkpoint was trained with {before}; nothing was trained"
            )
    chosen = arguments(args.out, per_device_train_batch_size=args.batch)
    trainer(chosen, Regressor(), Rows()).train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
