"""Whether a save may copy the state while the training computes: only where optimizer updates alone change it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from samestep.state import Snapshot

    from .capturing import Capturing


class Overlapping:
    """Decides it from save to save.

    Args:
        capturing: takes the state.
        wanted: the user, or this machine, wants it.
        on_trial: nobody has said that the training allows it: it is seen by the first save.
        say: shows a text to the user.
    """

    def __init__(
        self, capturing: Capturing, *, wanted: bool, on_trial: bool, say: Callable[[str], None]
    ) -> None:
        self._capturing, self._say = capturing, say
        self.wanted = wanted
        self._may_refuse, self._untried = on_trial, on_trial

    @property
    def allowed(self) -> bool:
        """Whether the next save may do it."""
        return self.wanted and not self._untried

    def guard(self, snapshot: Snapshot) -> Callable[[], None]:
        """Return what has to be called right before the next update."""
        if not (self.wanted and self._untried):
            return snapshot.wait_staged
        self._untried = False
        before = self._capturing.marks()

        def judge() -> None:
            snapshot.wait_staged()
            if self._capturing.marks() != before:
                self.refused()

        return judge

    def refused(self) -> bool:
        """The training does not allow it: do it no more, unless the user insists; return whether that is so."""
        if self.wanted and self._may_refuse:
            self.wanted = False
            self._say(
                "the training changes parameters outside of optimizer updates: saves copy the state before it goes on"
            )
        return not self.wanted
