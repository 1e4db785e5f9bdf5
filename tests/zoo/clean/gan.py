"""Right. Two networks, two optimizers, two updates a step, each restored."""

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


def main() -> None:
    args = parser(__doc__).parse_args()
    seed_everything()
    maker, critic = TinyNet(), TinyNet()
    maker_optimizer = torch.optim.Adam(maker.parameters(), lr=0.02)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=0.01)
    stream = Stream(Samples())
    networks = {"maker": maker, "critic": critic}
    optimizers = {"maker_optimizer": maker_optimizer, "critic_optimizer": critic_optimizer}
    parts = networks | optimizers | {"stream": stream}
    store = Checkpoints(args.out)
    step = 0
    if state := store.newest():
        step = unpack(state, **parts)
    while step < STEPS:
        batch = next(stream)
        critic_loss = loss_of(critic, batch) + critic(batch[0] + maker(batch[0]).detach()).pow(2).mean()
        critic_optimizer.zero_grad()
        critic_loss.backward()
        critic_optimizer.step()
        loss = (critic(batch[0] + maker(batch[0])) - batch[1]).pow(2).mean()
        maker_optimizer.zero_grad()
        loss.backward()
        maker_optimizer.step()
        step += 1
        report(step, loss, maker_optimizer.param_groups[0]["lr"], batch[2])
        if step % SAVE_EVERY == 0:
            store.save(step, pack(step, **parts))


if __name__ == "__main__":
    main()
