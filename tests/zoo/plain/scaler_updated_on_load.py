"""Making the optimizer create its state with a dummy step also advances the loss scaler, which was restored
just before. In the right order the dummy step comes first.

RB074 (huggingface/accelerate).
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
    loss_of,
    pack,
    parser,
    report,
    seed_everything,
    unpack,
)


def create_state(optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
    """Step at rate 0 on zero gradients, as the setters of torch.distributed.checkpoint do."""
    group = optimizer.param_groups[0]
    rate, group["lr"] = group["lr"], 0.0
    for parameter in group["params"]:
        parameter.grad = torch.zeros_like(parameter)
    scaler.scale(torch.zeros(1))
    scaler.step(optimizer)
    scaler.update()
    group["lr"] = rate
    optimizer.zero_grad()


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    stream = Stream(Samples())
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        if args.twin:
            create_state(optimizer, scaler)
        step = unpack(state, **parts)
        if not args.twin:
            create_state(optimizer, scaler)
            step = unpack(state, model=model, optimizer=optimizer, stream=stream)
    while step < STEPS:
        batch = next(stream)
        optimizer.zero_grad()
        loss = loss_of(model, batch)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        step += 1
        report(step, loss, scaler.get_scale(), batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
