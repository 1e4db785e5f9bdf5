"""The Trainer of transformers: bundles of its own checkpoint folders, with what they leave out.

```python
bundles = samestep.integrations.transformers.Bundles("s3://bucket/run")
trainer = Trainer(..., callbacks=[bundles])
trainer.train(resume_from_checkpoint=bundles.resume(trainer))
```

**It seals the Trainer's folder.** The Trainer decides at which step and epoch it goes on before it asks any callback,
and only by a folder; and under FSDP and DeepSpeed only the Trainer knows how to load what it has saved. So every
checkpoint that it writes becomes a bundle, whole or not at all, and a restart gets the folder of the bundle that was
selected back, verified. Saving is therefore as synchronous as the Trainer's.

What the Trainer does not keep is added to the folder, or settled:

- The batches come from `samestep.data`: the position in the data is saved, not computed from the step, and a random
  transform draws the same for a sample before and after a restart. So do samplers that draw, such as that of
  ``group_by_length``, and streams.
- States of callbacks are put back, which the Trainer does on request only.
- A save that falls on the last step of an epoch is made when the epoch has ended, with its evaluation.
- Another batch size, length, seed, rate or the like is refused: the Trainer would go on with other samples or rates.
- A run that is finished takes no further step when it is started again.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import TrainerCallback

from samestep.bundle.manifest import Data
from samestep.bundle.parts import SHARED_BYTES
from samestep.bundle.restoring import restore
from samestep.bundle.retention import Policy, prune
from samestep.bundle.sealing import Statements, seal
from samestep.bundle.storage.opening import open_storage
from samestep.errors import SamestepError
from samestep.run.errors import RunError, hinted
from samestep.run.following import follow
from samestep.run.progress import Progress
from samestep.run.ranks import LIMIT_SECONDS, agreement, from_first, join
from samestep.run.resuming import Beginning, Here, Wishes
from samestep.run.session import Session
from samestep.run.stopping import Signals, Stopping
from samestep.state.buffers import TrackedBuffers
from samestep.state.tracking import track

from .loaders import Given, plain
from .trainer_parts import (
    check,
    described,
    put_back,
    read_beside,
    require_all_ranks,
    take_over,
    write_beside,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.storage.base import Storage
    from samestep.data import Replayability
    from samestep.run.stopping import NoticeSource

_PLACE = "samestep-resume"
"""Folder in the output folder that a bundle is put into until the Trainer has read it."""

_DATA_ROWS = ("data-order", "data-position")
_HOW = "samestep-RANK.json, sealed with the Trainer's files, says where the data stands"
_RANKS_FIXED = (
    "the Trainer computes its epoch and its place there from the step, for the number of ranks that there is"
)


@dataclasses.dataclass
class _Begun:
    """An attempt: what ``resume`` has made."""

    trainer: Trainer
    session: Session
    given: Given
    method: Mapping[str, Any]
    extra: dict[str, Any] | None
    folder: Path | None


class Bundles(TrainerCallback):  # type: ignore[misc]
    """Makes a bundle of every checkpoint of a Trainer, and gives the selected one back.

    The Trainer's ``save_strategy`` says when to save; SIGTERM and SIGUSR1 make it save after the step that is going
    on, and end the process with exit status 75 when the bundle exists.

    Args:
        root: folder or URL that the run's bundles lie in.
        keep: how many bundles stay, or a retention policy; None to keep all, as with ``load_best_model_at_end``.
        keep_folders: leave the Trainer's own folder where it is when a bundle was made of it. Otherwise it is removed:
            nothing resumes from it. With ``load_best_model_at_end`` it stays, since the Trainer reads it again.
        tracked: further objects by name, as in ``samestep.Run``: what a callback or a model keeps beside the Trainer.
        policy: ``fallback`` goes on from an older bundle when the newest is damaged, ``strict`` refuses to.
        transfer: whether the kind of device may differ from that of the bundle. The number of ranks may not.
        begin_again: why the run begins afresh where nothing that is there can be used.
        data_version: of the data, in your own words; by default a fingerprint of its content.
        replay: what you know of a stream, see ``samestep.data.Replayability``.
        notices: where notices come from; signals by default.
        limit_seconds: how long ranks wait for each other.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        keep: int | Policy | None = 3,
        keep_folders: bool = False,
        tracked: Mapping[str, Any] | None = None,
        policy: str = "fallback",
        transfer: bool = False,
        begin_again: str = "",
        data_version: str | None = None,
        replay: Replayability | None = None,
        notices: Sequence[NoticeSource] | None = None,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> None:
        self._storage = open_storage(root)
        self._keep = Policy(keep_last=keep) if isinstance(keep, int) else keep
        self._keep_folders = keep_folders
        self._tracked = dict(tracked or {})
        self._wishes = Wishes(policy, transfer, begin_again, ranks_fixed=_RANKS_FIXED)
        self._data_version, self._replay = data_version, replay
        self._notices, self._limit = notices, limit_seconds
        self._stopping: Stopping | None = None
        self._postponed = self._leaving = False
        self._begun_or_none: _Begun | None = None

    # -- before the training ---------------------------------------------------------------------------------------

    def resume(self, trainer: Trainer) -> str | None:
        """Begin an attempt; return what ``trainer.train(resume_from_checkpoint=...)`` is to be given.

        The folder of the selected bundle is written into the Trainer's output folder and removed again when the
        Trainer has read it. None at the first start.

        Raises:
            MethodChanged: the run in the store is not the one that the Trainer would go on with.
            SamestepError: the run cannot be resumed; the message says why.
        """
        with hinted():
            return self._resume(trainer)

    def _resume(self, trainer: Trainer) -> str | None:
        arguments = trainer.args
        check(arguments, self._tracked, trainer)
        self._ranks = join(self._limit)
        self._agreed = agreement()
        self._progress = Progress(shown=self._ranks.rank == 0)
        seed = arguments.seed if arguments.data_seed is None else arguments.data_seed
        loader = plain(trainer.get_train_dataloader())
        followed = follow(loader, self._ranks, seed=seed, version=self._data_version, replay=self._replay)
        if followed is None:
            raise RunError("the Trainer has no training data")
        method = described(trainer)
        here = Here(method, followed.version, arguments.device.type)
        beginning = Beginning(
            self._storage,
            self._wishes,
            here,
            self._ranks,
            origin=None,
            say=self._progress.say,
            session=Session,
        )
        place = Path(arguments.output_dir) / _PLACE
        begun = beginning.begin(lambda bundle, storage: self._restore(bundle, storage, place))
        folder = place if begun.bundle is not None else None
        self._begun_or_none = _Begun(trainer, begun.session, Given(followed), method, None, folder)
        if folder is not None and begun.bundle is not None:
            self._go_on(folder, begun.bundle.step)
        take_over(trainer, self._begun.given)
        return None if folder is None else str(folder)

    def _restore(self, bundle: Bundle, storage: Storage, place: Path) -> None:
        """Write the bundle's folder, once on every machine."""
        if self._local_first:
            shutil.rmtree(place, ignore_errors=True)
            restore(storage, bundle, place)

    @property
    def _local_first(self) -> bool:
        return self._ranks.size == 1 or int(torch.distributed.get_node_local_rank(0)) == 0

    def _go_on(self, folder: Path, step: int) -> None:
        """Put the data where it stood; what needs the optimizer comes when the training begins."""
        begun = self._begun
        begun.extra = read_beside(folder, self._ranks.rank)
        followed = begun.given.followed
        for change in followed.load_state_dict(begun.extra["data"]):
            self._progress.say(f"the data: {change}")
        length = followed.batches_per_epoch
        used = followed.position.batches
        arguments = begun.trainer.args
        if length is None:  # the Trainer takes the whole run for one epoch
            counted = step % arguments.max_steps * arguments.gradient_accumulation_steps
        else:
            counted = used % length
        begun.given = Given(followed, counted, lambda: self._finished)

    @property
    def _finished(self) -> bool:
        """Whether the run was over when it was saved: by its length, or because a callback said so."""
        begun = self._begun
        step: int = begun.trainer.state.global_step
        return step >= begun.trainer.state.max_steps or (begun.extra or {}).get("stopped") == step

    @property
    def _begun(self) -> _Begun:
        if self._begun_or_none is None:
            with hinted():
                raise RunError(
                    "the training began without a word to its bundles",
                    hint="trainer.train(resume_from_checkpoint=bundles.resume(trainer))",
                )
        return self._begun_or_none

    # -- what the Trainer calls --------------------------------------------------------------------------------------

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Put back what the Trainer has set to its start, and listen to notices."""
        begun = self._begun
        handler = begun.trainer.callback_handler
        handler.callbacks = [
            *(other for other in handler.callbacks if other is not self),
            self,
        ]  # the last word
        if begun.extra is not None:
            put_back(begun.trainer, self._tracked, begun.extra)
        self._stopping = Stopping([Signals()] if self._notices is None else self._notices)
        self._stopping.start()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Ask for a save after a notice, and move one at the end of an epoch behind what belongs to that."""
        begun = self._begun
        begun.session.executed(state.global_step)
        self._forget_folder()
        heard = self._stopping is not None and self._stopping.notice is not None
        if self._agreed.propose([heard])[0]:
            self._leaving = control.should_save = True
        self._postponed = control.should_save and begun.given.at_end
        if self._postponed:
            control.should_save = False
        return control

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Save what an evaluation ends, so that it is known to have ended."""
        control.should_save = control.should_save or control.should_training_stop
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> TrainerControl:
        """Make the save that had to wait for the end of the epoch."""
        control.should_save = control.should_save or self._postponed
        self._postponed = False
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Seal the folder that the Trainer has just written.

        Raises:
            SamestepError: no bundle could be made of it.
            SystemExit: a notice had arrived, and the bundle exists.
        """
        begun = self._begun
        folder = Path(begun.trainer._get_output_dir(trial=None)) / f"checkpoint-{state.global_step}"
        with hinted():
            stopped = state.global_step if control.should_training_stop else None
            write_beside(folder, self._ranks.rank, self._extra() | {"stopped": stopped})
            self._ranks.barrier()
            from_first(self._ranks, lambda: self._seal(folder, state.global_step))
        if self._local_first and not (self._keep_folders or args.load_best_model_at_end):
            shutil.rmtree(folder, ignore_errors=True)
        if self._leaving:
            self._leave(state.global_step)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """End the attempt."""
        self._forget_folder()
        self._end("finished", state.global_step)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _extra(self) -> dict[str, Any]:
        trainer = self._begun.trainer
        return {
            "data": self._begun.given.followed.state_dict(),
            "loss": trainer._tr_loss,  # of the steps since it was logged
            "logged_at": trainer._globalstep_last_logged,
            "tracked": {name: track(name, thing).read() for name, thing in self._tracked.items()},
            "buffers": TrackedBuffers("model", trainer.model).read(),
        }

    def _seal(self, folder: Path, step: int) -> None:
        session = self._begun.session
        attempt = session.attempt
        if attempt is None:
            raise ValueError("only the first rank seals")
        if attempt.newest is not None and attempt.newest.bundle.step >= step:
            return  # the run was finished when it was started, or the epoch's end saves what was just saved
        require_all_ranks(folder, self._ranks.size)
        followed = self._begun.given.followed
        position = json.loads(json.dumps(followed.state_dict()["position"]))
        statements = Statements(
            rebuilt=dict.fromkeys(_DATA_ROWS, _HOW),
            data=Data(version=followed.version, position=position, rule=followed.replayability.sentence),
            progress={"method": self._begun.method},
            share_from=SHARED_BYTES,
        )
        bundle = seal(attempt, folder, statements, carrier=session.carrier)
        self._progress.say(f"saved {bundle.id}, step {bundle.step}")
        if self._keep is not None and not self._begun.trainer.args.load_best_model_at_end:
            try:
                prune(session.store.chain, self._keep)
            except SamestepError as error:
                self._progress.say(f"older bundles stay: {error.message}")

    def _leave(self, step: int) -> None:
        notice = self._stopping.notice if self._stopping is not None else None
        self._begun.session.note("notice", source=notice.source if notice else "another rank", step=step)
        self._end("notice", step)
        sys.exit(notice.exit_code if notice else 75)

    def _end(self, outcome: str, step: int) -> None:
        if self._stopping is not None:
            self._stopping.stop()
            self._stopping = None
        self._begun.session.note("ended", outcome=outcome, step=step)
        self._begun.session.close()

    def _forget_folder(self) -> None:
        """Remove what was only there for the Trainer to read."""
        folder, self._begun.folder = self._begun.folder, None
        if folder is not None and self._local_first:
            shutil.rmtree(folder, ignore_errors=True)
