"""The step counter goes on and the loader starts its epoch again: early samples twice, late ones never.

RB153 (NVIDIA-NeMo/Megatron-Bridge): the consumed samples were restored and the loader ignored them.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from common import (
    BATCH,
    SAVE_EVERY,
    STEPS,
    Checkpoints,
    EpochSampler,
    Samples,
    TinyNet,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
    update,
)
from torch.utils.data import DataLoader


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    data = Samples()
    sampler = EpochSampler(len(data), seed=0)
    loader = DataLoader(data, BATCH, sampler=sampler, generator=torch.Generator().manual_seed(0))
    model = TinyNet()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, model=model, optimizer=optimizer)
    per_epoch = len(data) // BATCH
    while step < STEPS:
        epoch, done = divmod(step, per_epoch)
        sampler.start_at(epoch, done * BATCH if args.twin else 0)
        for batch in loader:
            loss = update(model, optimizer, batch)
            step += 1
            report(step, loss, optimizer.param_groups[0]["lr"], batch[2])
            if step % SAVE_EVERY == 0:
                store.save(step, pack(step, model=model, optimizer=optimizer))
            if step == STEPS or step % per_epoch == 0:
                break


if __name__ == "__main__":
    main()
