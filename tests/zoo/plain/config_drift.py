"""The weight decay in force is put back into the loaded optimizer from this start's defaults, not from the run
that is continued, whose first start had found it by a search.

RB185 (hiyouga/LlamaFactory): users ask what exactly of the settings is restored.
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


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    stream = Stream(Samples())
    store = Checkpoints(args.out)
    state = store.newest()
    decay = 0.01 if state else 0.2  # a fresh start "searches" for it
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=decay)
    parts = {"model": model, "optimizer": optimizer, "stream": stream}
    step = unpack(state, **parts) if state else 0
    if not args.twin:
        optimizer.param_groups[0]["weight_decay"] = decay
    while step < STEPS:
        batch = next(stream)
        loss = update(model, optimizer, batch)
        step += 1
        report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
