"""A generator of the script's own draws the noise on the inputs; the three global streams are restored, this
one is not.

RB090 (vllm-project/speculators): random state outside the usual three was left out.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import torch
from common import (
    SAVE_EVERY,
    STEPS,
    Checkpoints,
    Samples,
    Stream,
    TinyNet,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    noise = np.random.default_rng(3)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
        if args.twin:
            noise.bit_generator.state = state["noise"]
    while step < STEPS:
        x, y, ids = next(stream)
        x = x + torch.from_numpy(noise.normal(scale=0.1, size=x.shape)).float()
        loss = update(model, optimizer, (x, y, ids))
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], ids)
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts) | {"noise": noise.bit_generator.state})


if __name__ == "__main__":
    main()
