# ruff: noqa: D102 - what the methods of a way do is said once, in ``Way``
"""The peers, each saving and restoring a state in the way its documentation shows.

Every way works on a live state as a training has it: a restore has ended when the live state holds the values.
Imports are late, so that a peer that is not installed is missed by its own worker only.
"""

from __future__ import annotations

import contextlib
import shutil
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Protocol

from peers.states import FROZEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from peers.states import Arrays


class Way(Protocol):
    """How one peer keeps a state; made once per process, with the state it works on."""

    def save(self, folder: Path) -> None:
        """Save the live state below ``folder``, which does not exist yet."""

    def restore(self, folder: Path) -> None:
        """Bring the values saved in ``folder`` back into the live state."""

    def arrays(self) -> Iterator[np.ndarray[Any, Any]]:
        """Yield the live state, to change and to compare it."""

    def train(self) -> None:
        """Change everything that a training step changes."""

    def forget(self) -> None:
        """Overwrite the live state, so that a restore that does nothing is noticed."""

    def clean(self, folder: Path) -> None:
        """Remove what was saved."""


class TorchState:
    """A live state of torch tensors, nested by section."""

    def __init__(self, arrays: Arrays) -> None:
        import torch

        self.state = {
            section: {name: torch.from_numpy(array) for name, array in named.items()}
            for section, named in arrays.items()
        }

    def tensors(self) -> dict[str, Any]:
        """Return the tensors in one flat dict."""
        return {
            f"{section}.{name}": tensor
            for section, named in self.state.items()
            for name, tensor in named.items()
        }

    def arrays(self) -> Iterator[np.ndarray[Any, Any]]:
        for named in self.state.values():
            for tensor in named.values():
                yield tensor.numpy()

    def train(self) -> None:
        for section in self.state.keys() - FROZEN:
            for tensor in self.state[section].values():
                tensor.mul_(1.0009765625)

    def forget(self) -> None:
        for tensor in self.tensors().values():
            tensor.zero_()

    def clean(self, folder: Path) -> None:
        shutil.rmtree(folder)


class TorchSave(TorchState):
    """``torch.save`` and ``torch.load``."""

    def save(self, folder: Path) -> None:
        import torch

        folder.mkdir()
        torch.save(self.state, folder / "state.pt")

    def restore(self, folder: Path) -> None:
        import torch

        loaded = torch.load(folder / "state.pt", weights_only=True)
        for section, named in self.state.items():
            for name, tensor in named.items():
                tensor.copy_(loaded[section][name])


class Safetensors(TorchState):
    """``safetensors.torch.save_file`` and ``load_file``."""

    def save(self, folder: Path) -> None:
        from safetensors.torch import save_file

        folder.mkdir()
        save_file(self.tensors(), folder / "state.safetensors")

    def restore(self, folder: Path) -> None:
        from safetensors.torch import load_file

        loaded = load_file(folder / "state.safetensors")
        for name, tensor in self.tensors().items():
            tensor.copy_(loaded[name])


class Dcp(TorchState):
    """``torch.distributed.checkpoint`` in one process, with its defaults."""

    threads = 1

    def save(self, folder: Path) -> None:
        import torch.distributed.checkpoint as dcp

        writer = dcp.FileSystemWriter(folder, thread_count=self.threads)
        with _without_warnings():
            dcp.save(self.state, storage_writer=writer, no_dist=True)

    def restore(self, folder: Path) -> None:
        import torch.distributed.checkpoint as dcp

        with _without_warnings():
            dcp.load(self.state, checkpoint_id=folder, no_dist=True)


class DcpTwoThreads(Dcp):
    """The same with two writing threads."""

    threads = 2


class TorchCheckpointing(TorchState):
    """``torch_checkpointing``, saving synchronously; its direct I/O fails on ext4, so it is off."""

    def __init__(self, arrays: Arrays) -> None:
        from torch_checkpointing import CheckpointManager
        from torch_checkpointing.config import SyncCheckpointSaverConfig
        from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

        super().__init__(arrays)
        storage = LocalFileSystemStorageConfig(use_direct_io=False)
        self._manager = CheckpointManager(
            CheckpointManager.Config(save=SyncCheckpointSaverConfig(), storage_config=storage)
        )

    def save(self, folder: Path) -> None:
        self._manager.save(str(folder), self.state)

    def restore(self, folder: Path) -> None:
        self._manager.load(str(folder), into=self.state)


class Torchsnapshot(TorchState):
    """``torchsnapshot``'s ``Snapshot.take`` and ``restore``."""

    def __init__(self, arrays: Arrays) -> None:
        import torchsnapshot

        super().__init__(arrays)
        self._app = {"state": torchsnapshot.StateDict(**self.state)}

    def save(self, folder: Path) -> None:
        import torchsnapshot

        torchsnapshot.Snapshot.take(str(folder), self._app)

    def restore(self, folder: Path) -> None:
        import torchsnapshot

        torchsnapshot.Snapshot(str(folder)).restore(self._app)
        self.state = dict(self._app["state"])


class Orbax:
    """Orbax's ``StandardCheckpointer``, saving and waiting, with JAX arrays on the CPU, which never change."""

    def __init__(self, arrays: Arrays) -> None:
        import jax
        import orbax.checkpoint as ocp

        self.state = jax.tree.map(jax.numpy.asarray, arrays)
        self._target = jax.tree.map(ocp.utils.to_shape_dtype_struct, self.state)
        self._checkpointer = ocp.StandardCheckpointer()

    def save(self, folder: Path) -> None:
        self._checkpointer.save(folder.absolute(), self.state)
        self._checkpointer.wait_until_finished()

    def restore(self, folder: Path) -> None:
        self.state = self._checkpointer.restore(folder.absolute(), self._target)

    def arrays(self) -> Iterator[np.ndarray[Any, Any]]:
        import numpy as np

        for named in self.state.values():
            yield from map(np.asarray, named.values())

    def train(self) -> None:
        import jax

        for section in self.state.keys() - FROZEN:
            self.state[section] = jax.tree.map(lambda array: array * 1.0009765625, self.state[section])

    def forget(self) -> None:
        self.state = {}

    def clean(self, folder: Path) -> None:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


PEERS: Final[dict[str, tuple[type[Any], str]]] = {
    "torch.save": (TorchSave, "torch"),
    "safetensors": (Safetensors, "safetensors"),
    "torch DCP": (Dcp, "torch"),
    "torch DCP, 2 threads": (DcpTwoThreads, "torch"),
    "torch-checkpointing": (TorchCheckpointing, "torch_checkpointing"),
    "torchsnapshot": (Torchsnapshot, "torchsnapshot"),
    "Orbax": (Orbax, "orbax-checkpoint"),
}
"""Each peer with its way and the distribution whose version is reported."""


def version_of(peer: str) -> str:
    """Return the name and version of the distribution behind a peer."""
    distribution = PEERS[peer][1]
    return f"{distribution} {version(distribution)}"
