"""The data of a run, followed so that any position can be gone back to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from samestep import data

from .sharing import share_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.data import FollowedData, Replayability
    from samestep.state.ranks import Ranks

_SEEDS = 2**63


def follow(
    loader: Any,
    ranks: Ranks,
    *,
    seed: int | None,
    version: str | None,
    replay: Replayability | None,
    models: Iterable[torch.nn.Module] = (),
) -> FollowedData | None:
    """Return the loader's data in an order that can be gone back to; see ``samestep.data.follow``.

    Args:
        loader: as the script made it; None when the script gives its batches itself.
        ranks: that train together; all take the seed of the first.
        seed: of the order; None to take the one that the script has given torch, which draws nothing.
        version: of the data, in the user's own words.
        replay: what the user knows of a stream.
        models: that are trained; by them ranks are known that work on each batch together.

    Raises:
        DataError: the loader cannot be followed.
    """
    if loader is None:
        return None
    own = torch.initial_seed() % _SEEDS if seed is None else seed
    shared = int(ranks.exchange(str(own).encode())[0])
    world = share_of(models, ranks)
    return data.follow(loader, seed=shared, world=world, version=version, replay=replay)


def described(loader: Any) -> dict[str, Any]:
    """Return what of a loader belongs to the method of a training: how its batches are made up."""
    names = ("batch_size", "drop_last")
    return {name: getattr(loader, name) for name in names if getattr(loader, name, None) is not None}
