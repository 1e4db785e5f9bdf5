"""Random generators: single ones that a program made, and those that a process always has."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from samestep.contract.words import Component
from samestep.state.builtin_codecs import byte_tensor, random_state, spelled_random
from samestep.state.errors import StateError
from samestep.state.numpy_codecs import bit_generator_state, set_bit_generator_state
from samestep.state.tracked import Tracked

if TYPE_CHECKING:
    from types import ModuleType

    from samestep.state.mismatches import Mismatches

GENERATORS: Final = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
_DEVICE_KINDS: Final = ("cuda", "xpu", "mps")


class _Values(Tracked):
    """State that is all values and no tensors, of every rank its own."""

    per_rank = True

    def _prepare(self, stored: Any, mismatches: Mismatches) -> Any:  # noqa: ARG002 - nothing to allocate
        return stored


class TrackedGenerator(_Values):
    """A generator of torch, NumPy or Python that the program made and draws from."""

    def __init__(self, name: str, generator: Any, component: Component = Component.RNG) -> None:
        super().__init__(name, generator, component)
        self.read()

    def read(self) -> dict[str, Any]:
        """Return the state; nothing is drawn."""
        thing = self.thing
        if isinstance(thing, torch.Generator):
            return {"device": thing.device.type, "state": _bytes(thing.get_state())}
        if isinstance(thing, np.random.Generator):
            return bit_generator_state(thing.bit_generator)
        if isinstance(thing, np.random.RandomState):
            return {"state": thing.get_state(legacy=False)}
        return {"state": spelled_random(thing.getstate())}

    def _prepare(self, stored: dict[str, Any], mismatches: Mismatches) -> dict[str, Any]:
        present = self.read()
        for field in ("device", "bit_generator"):
            before, now = _field(stored, field), _field(present, field)
            if before != now:
                mismatches.differs(self.name, f"a generator of {before}", f"of {now}")
        return stored

    def write(self, tree: dict[str, Any]) -> None:
        """Set the state."""
        thing = self.thing
        if isinstance(thing, torch.Generator):
            thing.set_state(byte_tensor(tree["state"]))
        elif isinstance(thing, np.random.Generator):
            set_bit_generator_state(thing.bit_generator, tree)
        elif isinstance(thing, np.random.RandomState):
            thing.set_state(tree["state"])
        else:
            thing.setstate(random_state(tree["state"]))


class TrackedRng(_Values):
    """The generators that every process has: Python's, NumPy's global one, torch's for the CPU and each device.

    Restore it last: building or loading other things may draw.
    """

    def __init__(self, name: str = "rng") -> None:
        super().__init__(name, None, Component.RNG)
        self.kind = "process"

    def read(self) -> dict[str, Any]:
        """Return the states of all; nothing is drawn, and no device is started for it."""
        return {
            "devices": {kind: states for kind in _DEVICE_KINDS if (states := _device_states(kind))},
            "numpy": np.random.get_state(legacy=False),  # noqa: NPY002 - the state of others' draws
            "python": spelled_random(random.getstate()),
            "torch": _bytes(torch.get_rng_state()),
        }

    def _prepare(self, stored: dict[str, Any], mismatches: Mismatches) -> dict[str, Any]:
        devices = {}
        for kind, states in stored["devices"].items():
            present = _device_count(kind)
            devices[kind] = states[:present]
            for index in range(present, len(states)):
                mismatches.surplus(self.place(kind, index), because=" (there is no such device here)")
        return stored | {"devices": devices}

    def write(self, tree: dict[str, Any]) -> None:
        """Set the states of all."""
        random.setstate(random_state(tree["python"]))
        np.random.set_state(tree["numpy"])  # noqa: NPY002
        torch.set_rng_state(byte_tensor(tree["torch"]))
        for kind, states in tree["devices"].items():
            for index, state in enumerate(states):
                _set_device_state(kind, index, byte_tensor(state))


def is_generator(thing: Any) -> bool:
    """Whether a thing is a random generator whose state can be kept.

    Raises:
        StateError: it draws from the operating system and has none.
    """
    if isinstance(thing, random.SystemRandom):
        raise StateError(
            "a SystemRandom draws from the operating system and has no state",
            slug="untrackable",
            hint="Use random.Random with a seed.",
        )
    return isinstance(thing, GENERATORS)


def _bytes(state: torch.Tensor) -> bytes:
    return state.cpu().numpy().tobytes()


def _field(spelled: dict[str, Any], field: str) -> Any:
    inner = spelled.get("state")
    return spelled.get(field) or (inner.get(field) if isinstance(inner, dict) else None)


def _device_module(kind: str) -> ModuleType | None:
    module: ModuleType | None = getattr(torch, kind, None)
    return module


def _device_count(kind: str) -> int:
    module = _device_module(kind)
    return module.device_count() if module is not None and module.is_available() else 0


def _device_states(kind: str) -> list[bytes]:
    """Return the states of the devices of a kind that this process has used; none before it used one."""
    module = _device_module(kind)
    if module is None or not module.is_available() or not getattr(module, "is_initialized", lambda: True)():
        return []
    if kind == "mps":
        return [_bytes(module.get_rng_state())]
    return [_bytes(module.get_rng_state(index)) for index in range(module.device_count())]


def _set_device_state(kind: str, index: int, state: torch.Tensor) -> None:
    module = _device_module(kind)
    if module is None:
        return
    if kind == "mps":
        module.set_rng_state(state)
    else:
        module.set_rng_state(state, index)
