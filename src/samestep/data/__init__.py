"""The data of a run: which sample comes next, whatever happened before.

- Map-style data is read in a `SeekableOrder`: (seed, epoch) names a permutation that is computed, not stored, the same
  for any number of ranks and workers. A position is a count of samples in that order, over all ranks.
- A `torch.utils.data.DataLoader` is rebuilt around that order with its other arguments; the user's is left alone.
- A position counts what the loop was given, never what workers fetched ahead. The last batch of an epoch leaves it in
  that epoch; only when the loop asks for more does the next one begin.
- Random numbers follow from the place in the data: (seed, epoch, sample) for map-style data, (seed, epoch, rank,
  worker, item) for streams. The process's own streams are put back after every fetch.
- What has no order is put back by its own state (torchdata, Hugging Face, Grain, MosaicML: by their methods, not by
  their names), or fetched again and passed over, with a digest of the last batch as the proof, or not at all;
  `Replayability` says which.
- `follow` is the one door. This package knows nothing of bundles and of the training loop.
"""

from __future__ import annotations

from samestep.data.batches import Tail
from samestep.data.errors import DataChanged, DataError, NotFollowed, ReplayDiffers
from samestep.data.followed import FollowedData, follow
from samestep.data.order import SeekableOrder
from samestep.data.position import Position
from samestep.data.replay import Replay, Replayability

__all__ = [
    "DataChanged",
    "DataError",
    "FollowedData",
    "NotFollowed",
    "Position",
    "Replay",
    "ReplayDiffers",
    "Replayability",
    "SeekableOrder",
    "Tail",
    "follow",
]
