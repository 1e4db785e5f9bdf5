"""ignore_data_skip makes the restart faster and reads the interrupted epoch from its first sample.

No single public report; a documented option whose price few expect.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import parser, seed_everything
from toy_trainer import Regressor, Rows, arguments, newest, trainer


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    chosen = arguments(args.out, ignore_data_skip=not args.twin)
    trainer(chosen, Regressor(), Rows()).train(resume_from_checkpoint=newest(args.out))


if __name__ == "__main__":
    main()
