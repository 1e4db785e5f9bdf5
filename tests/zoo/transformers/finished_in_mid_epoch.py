"""A run whose step limit falls inside an epoch takes one more step each time it is started after its end: the
limit is tested after a step only. The twin asks first.

RB185 (hiyouga/LlamaFactory) is about what happens at a step count already reached.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import STEPS, parser, seed_everything
from toy_trainer import Regressor, Rows, arguments, newest, trainer


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()

    chosen = arguments(args.out, max_steps=STEPS)
    made = trainer(chosen, Regressor(), Rows())
    checkpoint = newest(args.out)
    if not (args.twin and checkpoint and checkpoint.endswith(f"checkpoint-{STEPS}")):
        made.train(resume_from_checkpoint=checkpoint)


if __name__ == "__main__":
    main()
