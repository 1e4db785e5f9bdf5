"""The training loader of a Lightning fit, and where the training stands in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samestep.data import DataChanged
from samestep.run.errors import RunError
from samestep.run.following import follow
from samestep.run.ranks import join

from .loaders import Given

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from samestep.data import FollowedData, Replayability

_FETCHED_AHEAD = 3
"""So many batches at most lie between what the training has used and what its fetcher has asked for, and one more."""


class Loader:
    """A training loader whose position is saved; made by ``Bundles.loader``.

    Lightning has asked for a batch, or two, when it begins a step. So the position before each of the last batches is
    remembered, by epoch and number.
    """

    def __init__(
        self, loader: Any, seed: int | None, version: str | None, replay: Replayability | None
    ) -> None:
        self.source = loader
        self._options = {"seed": seed, "version": version, "replay": replay}
        self._followed: FollowedData | None = None
        self._given: Given | None = None
        self._before: dict[int, Any] = {}
        self._count = 0

    @property
    def followed(self) -> FollowedData:
        """The data; followed from when Lightning first asks, since only then the ranks are known."""
        if self._followed is None:
            self._followed = follow(self.source, join(60.0), **self._options)  # type: ignore[arg-type]
        if self._followed is None:
            raise RunError("there is nothing to take batches from", hint="bundles.loader(DataLoader(...))")
        return self._followed

    def __len__(self) -> int:
        return len(Given(self.followed))

    def __iter__(self) -> Iterator[Any]:
        if self._given is None:
            self._given = Given(self.followed)
        return self._remembering(self._given)

    def _remembering(self, given: Given) -> Iterator[Any]:
        given.end_epoch()
        self._remember()
        for batch in given:
            self._count += 1
            yield batch
            self._remember()

    def _remember(self) -> None:
        self._before[self._count] = self.followed.state_dict()
        self._before.pop(self._count - _FETCHED_AHEAD, None)

    def before(self, batches: int) -> Any:
        """Return the state before the last but ``batches - 1`` batch that was given; 0 for the state of now."""
        if batches == 0:
            return self.followed.state_dict()
        return self._before[self._count - batches]

    @property
    def given(self) -> int:
        """How many batches were given in this process."""
        return self._count

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: the bundle has it. Lightning takes a loader with this method for one that can resume."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take nothing."""


class Position:
    """Where the training stands in its data, behind what was fetched ahead."""

    def __init__(self, loader: Loader, ahead: Callable[[], int]) -> None:
        self._loader, self._ahead = loader, ahead

    def state_dict(self) -> dict[str, Any]:
        """Return the position and which data it is of."""
        return {
            "version": self._loader.followed.version,
            "position": self._loader.before(self._ahead()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go there.

        Raises:
            DataChanged: it is other data.
        """
        followed = self._loader.followed
        if state["version"] != followed.version:
            raise DataChanged(
                f"the data is not what the run was trained on: it was {state['version']!r} and is {followed.version!r}",
                hint="bring the former data back, or start a new run from the weights",
            )
        followed.load_state_dict(state["position"])
