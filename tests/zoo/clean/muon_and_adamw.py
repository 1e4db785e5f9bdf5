"""Right. Matrices are updated by an orthogonalised momentum, the rest by AdamW: two optimizers in every step."""

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


class Orthogonal(torch.optim.Optimizer):
    """Momentum whose update is the nearest orthogonal matrix, by its singular vectors."""

    def __init__(self, params: list[torch.nn.Parameter], lr: float) -> None:
        super().__init__(params, {"lr": lr, "momentum": 0.9})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                held = state.setdefault("momentum", torch.zeros_like(parameter))
                held.mul_(group["momentum"]).add_(parameter.grad)
                left, _, right = torch.linalg.svd(held, full_matrices=False)
                parameter.add_(left @ right, alpha=-group["lr"])


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    model = TinyNet()
    matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
    vectors = [parameter for parameter in model.parameters() if parameter.ndim != 2]
    orthogonal = Orthogonal(matrices, lr=0.02)
    adamw = torch.optim.AdamW(vectors, lr=0.02)
    stream = Stream(Samples())
    parts = {"model": model, "orthogonal": orthogonal, "adamw": adamw, "stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        model.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        orthogonal.step()
        adamw.step()
        step += 1
        report(step, loss, adamw.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
