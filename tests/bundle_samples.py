"""Small bundles to try the store with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from samestep.bundle.manifest import COMPONENTS, Data, Row
from samestep.bundle.storage.contents import BufferContent
from samestep.bundle.store import Store

if TYPE_CHECKING:
    from samestep.bundle.attempts import Attempt
    from samestep.bundle.bundles import Bundle
    from samestep.bundle.saving import Saving
    from samestep.bundle.storage.base import Storage

REST = {
    name: Row(state="irrelevant", because="the example has none")
    for name in COMPONENTS
    if name not in ("weights", "optimizer")
}
FROZEN = b"frozen " * 100


def files(step: int) -> dict[str, bytes]:
    """What a bundle of that step holds."""
    return {
        "model.safetensors": f"weights after {step} ".encode() * 50,
        "state/optimizer.bin": f"moments after {step} ".encode() * 50,
        "tokenizer.json": FROZEN,
    }


def add_files(saving: Saving, step: int) -> None:
    carried = {"model.safetensors": ["weights"], "state/optimizer.bin": ["optimizer"]}
    for path, data in files(step).items():
        saving.add(path, BufferContent(data), components=carried.get(path, ()))


def save(attempt: Attempt, step: int, **commit: Any) -> Bundle:
    saving = attempt.begin(step=step)
    add_files(saving, step)
    return saving.commit(**{"contract": REST, "data": Data(version="v1")} | commit)


def started(storage: Storage) -> tuple[Store, Attempt]:
    """A run with its first attempt."""
    store = Store.create(storage)
    return store, store.register(store.select(), "first start")


def again(storage: Storage) -> tuple[Store, Attempt]:
    """The run with another attempt, which goes on from what is selected."""
    store = Store.open(storage, writing=True)
    return store, store.register(store.select(), "restart")


def content_of(folder: Any) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
