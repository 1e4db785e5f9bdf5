# ruff: noqa: D102 - what the methods of a way do is said once, in ``Way``
"""How each peer saves while a training goes on, in the way its documentation shows.

A save has one in flight at most: the next one waits for it. A peer whose files are not durable when it says that a
save is done gets fsync of every file and folder, in a thread where it saves in the background. All keep the two
newest saves; who does not remove older ones by itself gets that done in a thread.
"""

from __future__ import annotations

import concurrent.futures
import shutil
import warnings
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, ClassVar, Final

from peers.measuring import sync_tree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from peers.training import Small, Training

    Wait = Callable[[], Any] | None


KEPT: Final = 2


class Way:
    """One way of saving a training; this one never does.

    Args:
        training: to save.
        folder: to save below.

    Attributes:
        guarantee: what holds when it says that a save is done.
        distribution: whose version is reported.
        background: whether the training goes on while it saves.
    """

    guarantee: ClassVar = "-"
    distribution: ClassVar = "torch"
    background: ClassVar = False

    def __init__(self, training: Training | Small, folder: Path) -> None:
        self.training, self.folder = training, folder
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._pending: concurrent.futures.Future[None] | None = None
        self.begin()

    def begin(self) -> None:
        """Make ready, before anything is measured."""

    def passed(self) -> None:
        """A training step is done."""

    def save(self, number: int) -> None:
        """Save the state of now; return when the training may go on, up to the next optimizer update."""
        self.finish()
        place = self.folder / f"save-{number}"
        written = self.write(place)
        if written is None:
            sync_tree(place)
        self._pending = self._pool.submit(self._settle, written, place)

    def _settle(self, written: Wait, place: Path) -> None:
        if written is not None:
            written()
            sync_tree(place)
        number = int(place.name.rpartition("-")[2]) - KEPT
        shutil.rmtree(self.folder / f"save-{number}", ignore_errors=True)

    def write(self, place: Path) -> Wait:
        """Save below ``place``; return what waits until that is done, or None when it is."""
        raise NotImplementedError

    def before_update(self) -> None:
        """Return when the optimizer may change the state."""

    def finish(self) -> None:
        """Return when the save in flight is durable."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def close(self) -> None:
        """Let go of everything."""
        self.finish()
        self._pool.shutdown()

    def newest(self) -> Path:
        """Return where the newest save lies."""
        return max(self.folder.glob("save-*"), key=lambda path: int(path.name.rpartition("-")[2]))

    def state(self) -> dict[str, Any]:
        """Return the state as ``torch.distributed.checkpoint.state_dict`` names it."""
        from torch.distributed.checkpoint.state_dict import get_state_dict

        if self.training.optimizer is None:
            return {"model": self.training.model.state_dict()}
        model, optimizer = get_state_dict(self.training.model, self.training.optimizer)
        return {"model": model, "optimizer": optimizer}


class TorchSave(Way):
    """``torch.save`` of the state dicts."""

    guarantee = "one file, durable by our fsync; written in place, no digest"

    def write(self, place: Path) -> Wait:
        import torch

        place.mkdir()
        training = self.training
        state = {"model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}
        torch.save(state, place / "state.pt")
        return None


class Accelerate(Way):
    """``Accelerator.save_state``."""

    guarantee = "files durable by our fsync; no marker, no digest"
    distribution = "accelerate"

    def begin(self) -> None:
        from accelerate import Accelerator

        self._accelerator = Accelerator(cpu=True)
        self._accelerator.prepare(self.training.model, self.training.optimizer)

    def write(self, place: Path) -> Wait:
        self._accelerator.save_state(str(place))
        return None


class Dcp(Way):
    """``torch.distributed.checkpoint.save``."""

    guarantee = "files fsynced by itself, folders by us; .metadata is the marker, no digest"

    def write(self, place: Path) -> Wait:
        import torch.distributed.checkpoint as dcp

        _quietly(dcp.save, self.state(), checkpoint_id=place, no_dist=True)
        return None


class DcpAsync(Way):
    """``torch.distributed.checkpoint.async_save`` as it is: new staging memory for every save."""

    guarantee = Dcp.guarantee
    background = True
    stager: Any = None

    def write(self, place: Path) -> Wait:
        import torch.distributed.checkpoint as dcp

        future = _quietly(
            dcp.async_save, self.state(), checkpoint_id=place, no_dist=True, async_stager=self.stager
        )
        return self.uploaded(future)

    def uploaded(self, future: Any) -> Wait:
        """Return what waits for the end of a save."""
        wait: Wait = future.result
        return wait


class DcpReused(DcpAsync):
    """The same with one stager in shared memory, used again for every save."""

    overlap = False

    def begin(self) -> None:
        from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

        options = StagingOptions(
            use_pinned_memory=False,
            use_shared_memory=True,
            use_async_staging=self.overlap,
            use_non_blocking_copy=False,
        )
        self.stager = DefaultStager(options)

    def close(self) -> None:
        super().close()
        self.stager.close()


class DcpBackground(DcpReused):
    """The same, staging in the background until the next optimizer update."""

    overlap = True
    staged: Any = None

    def uploaded(self, future: Any) -> Wait:
        self.staged = future.staging_completion
        wait: Wait = future.upload_completion.result
        return wait

    def before_update(self) -> None:
        if self.staged is not None:
            self.staged.result()
            self.staged = None


class TorchCheckpointing(Way):
    """``torch_checkpointing``, saving asynchronously; its direct I/O fails on ext4, so it is off."""

    guarantee = "files durable by our fsync; written in place, no digest"
    distribution = "torch_checkpointing"
    background = True

    def begin(self) -> None:
        from torch_checkpointing import CheckpointManager
        from torch_checkpointing.config import AsyncCheckpointSaverConfig
        from torch_checkpointing.storage.filesystem import LocalFileSystemStorageConfig

        storage = LocalFileSystemStorageConfig(use_direct_io=False)
        config = CheckpointManager.Config(save=AsyncCheckpointSaverConfig(), storage_config=storage)
        self._manager = CheckpointManager(config)

    def write(self, place: Path) -> Wait:
        future = self._manager.save(str(place), self.state())
        wait: Wait = future.result
        return wait

    def before_update(self) -> None:
        with self._manager.lock():
            pass

    def close(self) -> None:
        super().close()
        self._manager.close()


class Orbax(Way):
    """Orbax's ``AsyncCheckpointer`` on the memory of the tensors, which it copies."""

    guarantee = "files durable by our fsync; renamed into place, compressed, no digest of the content"
    distribution = "orbax-checkpoint"
    background = True

    def begin(self) -> None:
        import orbax.checkpoint as ocp

        self._args = ocp.args
        self._checkpointer = ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def write(self, place: Path) -> Wait:
        entries = self.training.optimizer.state.values()
        state = {
            "model": {name: tensor.numpy() for name, tensor in self.training.model.state_dict().items()},
            "optimizer": [{name: tensor.numpy() for name, tensor in entry.items()} for entry in entries],
        }
        self._checkpointer.save(place.absolute(), args=self._args.StandardSave(state))
        wait: Wait = self._checkpointer.wait_until_finished
        return wait


class Samestep(Way):
    """``samestep.Run``, which saves in the background."""

    guarantee = "every file and folder fsynced, every byte digested, committed by one exclusive record"
    distribution = "samestep"
    background = True
    asynchronous: Any = "stage"

    def begin(self) -> None:
        import samestep

        tracked = {} if self.training.optimizer is None else {"optimizer": self.training.optimizer}
        self._run = samestep.Run(
            self.folder / "run",
            model=self.training.model,
            **tracked,
            save=10**9,
            keep=KEPT,
            asynchronous=self.asynchronous,
            progress=False,
        )
        self._run.restore()

    def passed(self) -> None:
        self._run.step_done()

    def save(self, number: int) -> None:
        del number
        self._run.save()

    def finish(self) -> None:
        self._run.wait()

    def close(self) -> None:
        self._run.close()

    def newest(self) -> Path:
        return max((self.folder / "run" / "bundles").iterdir())


class SamestepOverlap(Samestep):
    """The same, copying while the next forward and backward run."""

    asynchronous = "overlap"


def _quietly(act: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return act(*arguments, **options)


NOTHING: Final = "no saves"
STAGE: Final = "samestep, stage"
OVERLAP: Final = "samestep, overlap"
DCP: Final = "DCP"
WAYS: Final[dict[str, type[Way]]] = {
    NOTHING: Way,
    STAGE: Samestep,
    OVERLAP: SamestepOverlap,
    "torch.save": TorchSave,
    DCP: Dcp,
    "Accelerate": Accelerate,
    "DCP async": DcpAsync,
    "DCP async, reused stager": DcpReused,
    "DCP async, background staging": DcpBackground,
    "torch-checkpointing async": TorchCheckpointing,
    "Orbax async": Orbax,
}
"""Each way that takes turns."""

OURS: Final = (STAGE, OVERLAP)
AT_HOME: Final = (NOTHING, *OURS, "Accelerate")
"""Ways that run in samestep's own environment, the others in that of the peers."""


def version_of(way: str) -> str:
    """Return the name and version of the distribution behind a way."""
    distribution = WAYS[way].distribution
    return f"{distribution} {version(distribution)}"
