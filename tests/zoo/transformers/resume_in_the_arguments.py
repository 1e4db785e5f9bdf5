"""The checkpoint to resume from is given in TrainingArguments and not to train(): it is never applied.

RB060 (huggingface/transformers).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import parser, seed_everything
from toy_trainer import Regressor, Rows, arguments, newest, trainer


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    checkpoint = newest(args.out)
    chosen = arguments(args.out, resume_from_checkpoint=checkpoint)
    trainer(chosen, Regressor(), Rows()).train(resume_from_checkpoint=checkpoint if args.twin else None)


if __name__ == "__main__":
    main()
