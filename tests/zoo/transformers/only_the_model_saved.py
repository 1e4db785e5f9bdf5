"""save_only_model leaves out optimizer, schedule and random states; the restart goes on at the right step with a
fresh optimizer and says nothing.

RB040 (huggingface/transformers) as an option.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import parser, seed_everything
from toy_trainer import Regressor, Rows, arguments, newest, trainer


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    chosen = arguments(args.out, save_only_model=not args.twin)
    trainer(chosen, Regressor(), Rows()).train(resume_from_checkpoint=newest(args.out))


if __name__ == "__main__":
    main()
