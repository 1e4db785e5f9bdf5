"""The saved names carry a wrapper's prefix; non-strict loading matches none of them and says nothing, so
training goes on from fresh weights with the right counters.

RB172 (FareedKhan-dev/train-llm-from-scratch).
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


class Wrapped(torch.nn.Module):
    """Holds the model under a name of its own, as torch.compile and DistributedDataParallel do."""

    def __init__(self, inner: torch.nn.Module) -> None:
        super().__init__()
        self._orig_mod = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._orig_mod(x)


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        weights = state["model"]
        if args.twin:
            weights = {name.removeprefix("_orig_mod."): value for name, value in weights.items()}
        model.load_state_dict(weights, strict=False)
        step = unpack(state, optimizer=optimizer, stream=stream)
    wrapped = Wrapped(model)
    while step < STEPS:
        batch = next(stream)
        loss = update(wrapped, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, model=wrapped, optimizer=optimizer, stream=stream))


if __name__ == "__main__":
    main()
