"""Which forwards, backwards and optimizer calls make one step: a state machine without torch.

A step is a window. It opens at the first outermost training-mode forward (or backward) after the last window
closed, holds micro-steps, and closes at the first forward or backward after an optimizer call. Optimizers
called in a row share a window (Muon + AdamW); two with a forward between them make two steps (a GAN). A call that
finds no micro-step and changes no weight is idle, not a step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass
class Micro:
    """One micro-step: forwards, then at most one backward."""

    forwards: int = 0
    backward: bool = False


@dataclass
class Window:
    """An open step.

    Attributes:
        number: the step number it will get.
        micros: its micro-steps so far.
        updates: optimizers called, in order, each with whether its update was applied.
        content: what the listener keeps about it.
        provisional: opened by an optimizer call that looks idle; its boundary has not been passed yet.
    """

    number: int
    micros: list[Micro] = field(default_factory=list)
    updates: list[tuple[Any, bool]] = field(default_factory=list)
    content: Any = None
    provisional: bool = False


class Listener(Protocol):
    """What happens at the edges of steps."""

    def boundary(self, steps: int) -> None:
        """``steps`` steps are complete and written; the next one is about to begin."""

    def opened(self, window: Window) -> None:
        """A window begins: capture what the step starts from."""

    def micro_begins(self, window: Window) -> None:
        """The last of ``window.micros`` begins."""

    def closed(self, window: Window) -> None:
        """The window was a step."""

    def idle(self, optimizer: Any) -> None:
        """The optimizer call was no step."""

    def changed(self, window: Window) -> bool:
        """Return whether weights differ from those at the opening."""


class Windows:
    """Follows one process through its steps.

    Attributes:
        steps: complete steps.
        window: the open one.
    """

    def __init__(self, listener: Listener) -> None:
        self.steps = 0
        self.window: Window | None = None
        self._listener = listener
        self._calls = 0
        self._in_backward = False

    @property
    def updating(self) -> bool:
        """Whether an optimizer call is in progress."""
        return self._calls > 0

    def forward(self) -> None:
        """An outermost training-mode forward is about to begin."""
        window = self._ready()
        if not window.micros or window.micros[-1].backward:
            self._next_micro(window)
        window.micros[-1].forwards += 1

    def backward(self) -> None:
        """A backward is about to begin."""
        window = self._ready()
        if not window.micros or window.micros[-1].backward:
            self._next_micro(window)
        window.micros[-1].backward = True
        self._in_backward = True

    def backward_ends(self) -> None:
        """The backward is over, whether it succeeded or raised."""
        self._in_backward = False

    def update_begins(self, optimizer: Any, *, looks_idle: bool = False) -> None:
        """An optimizer is about to be called.

        Args:
            optimizer: its identity.
            looks_idle: nothing suggests that the call can change a weight (no closure, learning rates 0).
        """
        self._calls += 1
        if self._calls > 1:
            return
        if self.window is not None and self._called_again(self.window, optimizer):
            self._close()
        if self.window is None:
            self._open(provisional=looks_idle)

    def update_ends(self, optimizer: Any, *, applied: bool = True) -> None:
        """The optimizer call is over; ``applied`` is False when a loss scaler skipped it on overflow."""
        self._calls = max(0, self._calls - 1)
        window = self.window
        if self._calls or window is None:
            return
        if window.micros or not applied or self._listener.changed(window):
            window.updates.append((optimizer, applied))
            return
        if not window.updates:
            self.window = None
        self._listener.idle(optimizer)

    def unseen_update(self, optimizer: Any) -> None:
        """Weights changed although no optimizer call was seen."""
        if self.window is not None:
            self.window.updates.append((optimizer, True))

    def update_failed(self) -> None:
        """The optimizer call raised; what it did not finish counts as no update."""
        self._calls = 0

    def finish(self) -> None:
        """Nothing more will happen."""
        if self.window is not None and self.window.updates:
            self._close()
        self.window = None

    def _called_again(self, window: Window, optimizer: Any) -> bool:
        return not self._in_backward and any(optimizer == seen for seen, _ in window.updates)

    def _ready(self) -> Window:
        """Return the window that a forward or backward belongs to."""
        if self.window is not None and self.window.updates:
            self._close()
        if self.window is None:
            return self._open()
        if self.window.provisional:
            self._listener.boundary(self.steps)
            self.window.provisional = False
            self._listener.opened(self.window)
        return self.window

    def _open(self, *, provisional: bool = False) -> Window:
        if not provisional:
            self._listener.boundary(self.steps)
        self.window = Window(self.steps + 1, provisional=provisional)
        self._listener.opened(self.window)
        return self.window

    def _close(self) -> None:
        window, self.window = self.window, None
        if window is not None:
            self.steps += 1
            self._listener.closed(window)

    def _next_micro(self, window: Window) -> None:
        window.micros.append(Micro())
        self._listener.micro_begins(window)
