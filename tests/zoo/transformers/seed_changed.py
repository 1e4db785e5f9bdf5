"""The seed is taken from the clock of the start: the restart computes another shuffle than the interrupted run and
skips in that one.

RB086, RB096 (huggingface/transformers, accelerate): the skip is right and the permutation is not.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import parser, seed_everything
from toy_trainer import Regressor, Rows, arguments, newest, trainer


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    note = args.out / "seed.txt"
    seed = 1
    if newest(args.out):
        seed = int(note.read_text()) if args.twin else 2  # "the clock" of the second start
    args.out.mkdir(parents=True, exist_ok=True)
    note.write_text(str(seed))
    chosen = arguments(args.out, data_seed=seed)
    trainer(chosen, Regressor(), Rows()).train(resume_from_checkpoint=newest(args.out))


if __name__ == "__main__":
    main()
