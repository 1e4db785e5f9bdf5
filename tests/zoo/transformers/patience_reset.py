"""Callback states are in the checkpoint and not used by default: early stopping counts its patience from zero and
the run goes on longer.

RB157 (huggingface/transformers).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import parser, seed_everything
from toy_trainer import Regressor, Rows, arguments, newest, trainer
from transformers import EarlyStoppingCallback


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    chosen = arguments(
        args.out,
        eval_strategy="steps",
        eval_steps=2,
        metric_for_best_model="loss",
        restore_callback_states_from_checkpoint=args.twin,
    )
    # The threshold lets no evaluation count as better than the first.
    stopping = EarlyStoppingCallback(early_stopping_patience=7, early_stopping_threshold=1e9)
    made = trainer(chosen, Regressor(), Rows(), eval_dataset=Rows(), callbacks=[stopping])
    finished = args.out / "finished"
    if not finished.exists():
        made.train(resume_from_checkpoint=newest(args.out))
        finished.touch()


if __name__ == "__main__":
    main()
