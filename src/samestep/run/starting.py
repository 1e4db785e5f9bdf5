"""Starting an attempt: check what is alive, follow the data, restore, and make ready for the first step."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import platform
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from samestep import __version__
from samestep.bundle.manifest import Data, World
from samestep.bundle.storage.objects import MEMORY
from samestep.contract import Component
from samestep.ledger.intervals import mean_life

from .accounts import interrupted_lives, lives_of
from .boundary import Boundary
from .capturing import Capturing
from .contract_check import require_rows, strays
from .counters import COUNTERS, Counters, counters_of
from .errors import RunError
from .excuses import without_excused
from .following import described, follow
from .gradients import OpenWindow
from .life import Life
from .method import describe
from .overlapping import Overlapping
from .policies import ASSUMED_LIFE_SECONDS, timer_of
from .progress import Progress
from .ranks import agreement, from_first, join
from .resuming import Beginning, Here
from .rows import rows_of
from .saver import Facts, Outcome, Saver
from .scalars import Scalars, sinks_of
from .session import Session
from .sharing import regrouped
from .stopping import Signals, Stopping

if TYPE_CHECKING:
    from types import FrameType

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.storage.base import Storage
    from samestep.data import FollowedData
    from samestep.state.ranks import Ranks

    from .lineage import Origin
    from .policies import Timer
    from .resuming import Begun
    from .settings import Settings
    from .tracking import Tracking

_SHARE_OF_WAITING = 0.9
"""Of the time limit, how much a rank waits for the others; what is left is for the training to come back."""

_SCALARS = "scalars-{ordinal:04}.jsonl"


@dataclasses.dataclass(frozen=True)
class Started:
    """An attempt that is ready for its first step, and the data that it follows."""

    life: Life
    data: FollowedData | None
    bundle: Bundle | None


class Starting:
    """Everything that is made between ``Run(…)`` and the first batch.

    Args:
        storage: the root.
        settings: of the run.
        tracking: its objects.
        loader: that its batches come from, or None.
        origin: of a new run that starts from another's weights.
    """

    def __init__(
        self, storage: Storage, settings: Settings, tracking: Tracking, loader: Any, origin: Origin | None
    ) -> None:
        self._storage, self._settings, self._tracking = storage, settings, tracking
        self._loader, self._origin = loader, origin
        self._window = OpenWindow(tracking.of(Component.WEIGHTS))
        self._data: FollowedData | None = None
        self._life: Life | None = None

    def start(self, frame: FrameType | None) -> Started:
        """Start the attempt.

        Args:
            frame: of the script, to find out what it calls things.

        Raises:
            ContractOpen: something alive has no row.
            MethodChanged: the run in the store is another one.
            SamestepError: anything else that keeps it from being started.
        """
        self._tracking.close()
        ranks = join(self._settings.limit_seconds)
        progress = Progress(shown=self._settings.progress and ranks.rank == 0, total=self._settings.steps)
        _look_at_place(self._storage, ranks, progress)
        self._check_contract(frame, progress)
        if said := regrouped(self._modules(), ranks):
            progress.say(said)
        counters = Counters(frame if ranks.rank == 0 else None, self._tracking.excused, progress.say)
        self._data = follow(
            self._loader,
            ranks,
            seed=self._settings.seed,
            version=self._settings.data_version,
            replay=self._settings.replay,
            models=self._modules(),
        )
        method = describe(self._tracking.described())
        if self._loader is not None:
            method["data"] = described(self._loader)
        here = Here(method, self._data_version, self._tracking.device)
        capturing = Capturing(self._tracking, self._data, self._window, ranks)
        beginning = Beginning(
            self._storage,
            self._settings.wishes,
            here,
            ranks,
            origin=self._origin,
            say=progress.say,
            session=Session,
        )
        begun = beginning.begin(lambda bundle, storage: self._restore(capturing, bundle, storage))
        if begun.bundle is None and self._origin is not None:
            self._origin.load(self._tracking, begun.session)
        for name, rebuilt in self._tracking.rebuilt.items():
            rebuilt.run(name)
        self._life = self._made(begun, here, capturing, progress, ranks, counters=counters)
        return Started(self._life, self._data, begun.bundle)

    def _modules(self) -> list[torch.nn.Module]:
        models = self._tracking.of(Component.WEIGHTS).values()
        return [model for model in models if isinstance(model, torch.nn.Module)]

    def _check_contract(self, frame: FrameType | None, progress: Progress) -> None:
        things = [*self._tracking.things, *self._tracking.framework]
        things += [] if self._loader is None else [self._loader]
        found = strays(things, list(self._tracking.of(Component.WEIGHTS).values()), frame)
        excused = without_excused(found, self._tracking.excused)
        require_rows(excused)
        for sentence in excused.taken:
            progress.say(sentence)
        for one in excused.left:
            progress.say(f"warning: {one} is not tracked: what it draws after a restart may differ")

    def _restore(self, capturing: Capturing, bundle: Bundle, storage: Storage) -> None:
        capturing.restore(
            bundle,
            storage,
            allow_missing=self._settings.allow_missing,
            allow_extra=self._settings.allow_extra,
        )

    def _made(
        self,
        begun: Begun,
        here: Here,
        capturing: Capturing,
        progress: Progress,
        ranks: Ranks,
        *,
        counters: Counters,
    ) -> Life:
        settings, session = self._settings, begun.session
        step = begun.bundle.step if begun.bundle else 0
        tolerant, limit = settings.on_save_error == "continue", settings.limit_seconds
        among = join(limit * _SHARE_OF_WAITING)
        abandon_after = None if tolerant else limit * (1 - _SHARE_OF_WAITING)
        saver = Saver(session, among, settings.keep, self._alarm, abandon_after)
        stopping = Stopping([Signals()] if settings.notices is None else settings.notices)
        optimizers = self._tracking.of(Component.OPTIMIZER).values()
        boundary = Boundary(optimizers, self._tracking.of(Component.SCALER).values())
        facts = _Manifest(self, here, capturing.components, ranks, counters)
        if begun.bundle is not None:
            counters.resumed(counters_of(begun.bundle.manifest), step)
        life = Life(
            session=session,
            saver=saver,
            capturing=capturing,
            boundary=boundary,
            stopping=stopping,
            agreed=agreement(),
            timer=self._timer(session, step, ranks),
            counters=counters,
            progress=progress,
            scalars=self._scalars(session, ranks, step),
            facts=facts,
            tolerant=tolerant,
            overlap=Overlapping(
                capturing,
                wanted=self._overlaps(here.device),
                on_trial=settings.asynchronous == "auto",
                say=progress.say,
            ),
            background=settings.asynchronous != "off",
            window=self._window,
            inside_windows=settings.accumulation == "capture",
            step=step,
            saved_step=begun.bundle.step if begun.bundle else -1,
        )
        facts.life = life
        if settings.asynchronous == "auto":
            when = (
                "while the next step computes" if life.copying == "overlap" else "before the training goes on"
            )
            progress.say(f"a save copies the state {when} and is written in the background")
        stopping.start()
        return life

    def _overlaps(self, device: str) -> bool:
        """Choose whether to copy while the training computes: where it leaves something to copy with."""
        if self._settings.asynchronous != "auto":
            return self._settings.asynchronous == "overlap"
        spare = len(os.sched_getaffinity(0)) - torch.get_num_threads()
        return device != "cpu" or spare > 0

    def _timer(self, session: Session, step: int, ranks: Ranks) -> Timer:
        def learned() -> float:
            lives = interrupted_lives(lives_of(session.store, session.folder))
            return mean_life(lives, assumed_seconds=ASSUMED_LIFE_SECONDS)

        life = float(from_first(ranks, learned))
        return timer_of(self._settings.policy, step, time.monotonic(), learned_life_seconds=life)

    def _scalars(self, session: Session, ranks: Ranks, step: int) -> Scalars:
        first = ranks.rank == 0
        name = (
            _SCALARS.format(ordinal=session.ordinal)
            if first
            else f"rank-{ranks.rank}-{session.ordinal}.jsonl"
        )
        sinks = sinks_of(self._settings.log_to, session.folder / "tensorboard", step) if first else []
        return Scalars(session.folder / name, sinks)

    def _alarm(self, outcome: Outcome) -> None:
        """Say at once, from the background, that a save has failed: the training may hang in another rank."""
        print(
            f"samestep: the save of step {outcome.step} failed: {outcome.error}", file=sys.stderr, flush=True
        )

    @property
    def _data_version(self) -> str:
        return "" if self._data is None else self._data.version

    def data_record(self) -> Data:
        """Return what a manifest says of the data."""
        if self._data is None:
            return Data()
        position = msgspec.to_builtins(self._data.position)
        return Data(version=self._data_version, position=position, rule=self._data.replayability.sentence)

    def contract(self, components: set[str]) -> Any:
        """Return the rows of what no part carries."""
        tracking = self._tracking
        return rows_of(
            components,
            tracking.rebuilt,
            tracking.irrelevant,
            has_data=self._data is not None,
        )


class _Manifest:
    """Says what a bundle of the moment is to say beside its parts."""

    def __init__(
        self, starting: Starting, here: Here, components: set[str], ranks: Ranks, counters: Counters
    ) -> None:
        self._starting, self._here, self._components, self._ranks = starting, here, components, ranks
        self._counters = counters
        self._code = _code()
        self._environment = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "samestep": __version__,
            "device": here.device,
        }
        self.life: Life | None = None

    def __call__(self) -> Facts:
        life = self.life
        if life is None:
            raise ValueError("the attempt has not begun")
        return Facts(
            step=life.step,
            contract=self._starting.contract(self._components),
            progress={
                "micro_steps": life.micro_steps,
                "method": self._here.method,
                COUNTERS: self._counters.told(),
            },
            data=self._starting.data_record(),
            environment=self._environment,
            code=self._code,
            world=World(size=self._ranks.size),
        )


def _look_at_place(storage: Storage, ranks: Ranks, progress: Progress) -> None:
    """Say what bundles in memory are good for; several processes cannot share any.

    Raises:
        RunError: several would have to.
    """
    if not storage.url.startswith(MEMORY):
        return
    if ranks.size > 1:
        raise RunError(
            f"{storage.url} is the memory of one process, and {ranks.size} ranks train here",
            hint="name a folder or a bucket that all of them reach",
        )
    progress.say(
        f"warning: bundles in {storage.url} are gone when this process ends, and no restart can go on from them: "
        "this is for trying things out"
    )


def _code() -> dict[str, str]:
    """Return the digest of the script, by its name."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        content = Path(str(script)).read_bytes() if script else b""
    except OSError:
        content = b""
    return {Path(str(script)).name: "sha256:" + hashlib.sha256(content).hexdigest()} if content else {}
