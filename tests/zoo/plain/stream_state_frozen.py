"""The stream's state stands still once it has been loaded: the first restart is right, the second one goes back
to where the first one began.

RB150 (huggingface/datasets): state frozen after the first load.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

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


class Resumable(Stream):
    """A stream whose state after a load is what was loaded, for ever."""

    frozen: dict[str, int] | None = None

    def load_state_dict(self, state: dict[str, int]) -> None:
        super().load_state_dict(state)
        self.frozen = dict(state)

    def state_dict(self) -> dict[str, int]:
        return self.frozen or super().state_dict()


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples()) if args.twin else Resumable(Samples())
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
