"""One watched process: turns what the hooks see into the records of its trace."""

from __future__ import annotations

import functools
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..trace import EndRecord, MicroStep, StepRecord
from ..trace.marks import set_mark
from . import ending, reach, surroundings
from .capture import Capture
from .content import tensor_digest
from .durable import DurableWatch
from .generators import global_generators
from .guard import guarded
from .inputs import Computed, tensors_in
from .loaders import LoaderWatch
from .open_step import UNSEEN, OpenStep, loss_of
from .optimizers import looks_idle
from .parking import Parking, after_closure
from .recorder import Recorder
from .sabotage import sabotage
from .windows import Window, Windows

if TYPE_CHECKING:
    from types import FrameType

    from ..trace import Orders

NO_FORWARD = (
    "no training-mode forward of a module was seen in a step (a compiled training function, or no module at all): "
    "what data it trained on is not known"
)

_SUSPICIOUS_WINDOWS = 3


class Session:
    """Follows one process.

    Attributes:
        capture: looks at the state; knows the live optimizers, schedulers and scalers.
        loaders: follows the data.
        working: the probe itself is at work: what it calls is not the script's doing.
        in_forward: an outermost training-mode forward is running.
        backwards: nested backwards running.
        calls: optimizer calls seen so far, nested ones included.
    """

    def __init__(self, orders: Orders) -> None:
        folder = Path(orders.trace_folder)
        self.capture = Capture(orders)
        self.loaders = LoaderWatch()
        self.working = False
        self.in_forward = False
        self.backwards = 0
        self.calls = 0
        self.spent = 0.0
        self.stopwatch = 0.0
        self._orders = orders
        self._folder = folder
        self._recorder = Recorder(folder, orders.attempt)
        self._durable = DurableWatch(orders.durable)
        self._parking = Parking(folder, orders.park, self._tell)
        self._windows = Windows(self)
        self._computed = Computed()
        self._frame: FrameType | None = None
        self._call_frame: FrameType | None = None
        self._sabotaged = not orders.sabotage
        self._settled = False
        self._unseen = False
        self._ended = False

    @property
    def deaf(self) -> bool:
        """Whether a forward that begins now is no outermost one of the script."""
        return self.in_forward or self.working or self.backwards > 0

    # -- what the hooks report -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Write the header and begin to watch the durable folder."""
        self._recorder.begin()
        self._durable.install()
        self.loaders.digest = tensor_digest

    @guarded
    def enter_forward(self, module: Any, inputs: tuple[Any, ...], frame: FrameType) -> bool:
        """An outermost training-mode forward is about to begin."""
        self._frame = frame
        self.capture.models.seen(module)
        self._notice_unseen_update()
        self._windows.forward()
        self._frame = None
        if self._orders.watch:
            self._note_inputs(inputs)
        return True

    @guarded
    def leave_forward(self, outputs: Any) -> None:
        """It is over."""
        if self._orders.watch:
            self._computed.add(outputs)

    @guarded
    def enter_backward(self, tensors: Any, frame: FrameType) -> None:
        """An outermost backward is about to begin."""
        self._frame = frame
        self._notice_unseen_update()
        self._windows.backward()
        self._frame = None
        content = self._content()
        if content is None or not self._orders.watch:
            return
        if not content.gradients_seen:
            content.gradients_seen = True
            content.shot.state.gradients = self.capture.gradients(content.record.index)
        content.record.micro_steps[-1].loss = loss_of(tensors)

    @guarded
    def leave_backward(self) -> None:
        """It is over, or it failed."""
        self._windows.backward_ends()
        content = self._content()
        if content is not None and content.updates and content.record.weights_after is None:
            self._note_weights(content)

    @guarded
    def before_update(
        self, optimizer: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], frame: FrameType
    ) -> Any:
        """An optimizer is about to be called; returns other arguments for it when its closure must be waited for."""
        self.calls += 1
        self._forget_failed_call(frame)
        closure = keywords.get("closure", arguments[1] if len(arguments) > 1 else None)
        self.capture.optimizers.remember(optimizer)
        self._frame = frame
        idle = looks_idle(optimizer, has_closure=callable(closure))
        if not self._windows.updating:
            self._call_frame = frame
            self._notice_unseen_update()
        self._windows.update_begins(id(optimizer), looks_idle=idle)
        self._frame = None
        return self._park_before_update(closure, arguments, keywords)

    @guarded
    def after_update(self, optimizer: Any) -> None:
        """The call is over."""
        found = getattr(optimizer, "found_inf", None)
        applied = found is None or not bool(found.item())
        self._update_ends(optimizer, applied=applied)

    @guarded
    def before_scaler_step(self) -> None:
        """A loss scaler will call an optimizer or skip it."""
        window = self._windows.window
        if window is not None and not window.updates:
            self._stop_at("update", window.number)

    @guarded
    def skipped(self, optimizer: Any, frame: FrameType) -> None:
        """A loss scaler has found an overflow and left the optimizer uncalled."""
        self.capture.optimizers.remember(optimizer)
        self._frame = frame
        self._windows.update_begins(id(optimizer))
        self._frame = None
        self._update_ends(optimizer, applied=False)

    @guarded
    def end(self) -> None:
        """The process ends on its own terms."""
        if self._ended or not self._recorder.has_trace:
            return
        self._ended = True
        self._notice_unseen_update()
        self._windows.finish()
        self._write_end(ending.reason())

    def forked(self) -> None:
        """This process is a forked child: the parent's trace is none of its business."""
        self._recorder.forget(self.end)
        self._windows = Windows(self)
        self._computed.clear()
        self.working = self.in_forward = False
        self.backwards = 0
        self._frame = self._call_frame = None
        self._settled = False

    def not_followed(self, what: str, why: Any) -> None:
        """Record what the probe could not follow."""
        reason = why if isinstance(why, str) else f"{type(why).__name__}: {why}"
        try:
            self._recorder.event_once(
                "not-followed", self._windows.steps, {"what": what, "why": reason[:500]}
            )
        except Exception:
            return  # a full disk must not stop the training; the missing records tell

    # -- what the windows report -----------------------------------------------------------------------------

    def boundary(self, steps: int) -> None:
        """``steps`` steps are written and the next one is about to begin: end, park or damage the process here."""
        if not self._settled:
            self._settle()
        if self._orders.step_limit and steps >= self._orders.step_limit:
            self._ended = True
            self._write_end("step-limit")
            ending.leave(self._folder, self._recorder.rank, self._recorder.world_size)
        if steps == 0:
            self._durable.changes()  # what lies there before the first step is no save of this run's steps
        self._stop_at("boundary", steps)
        if not self._sabotaged:
            self._sabotaged = True
            done = sabotage(self._orders.sabotage, self.capture, self.loaders)
            self._event("sabotaged", {"what": self._orders.sabotage, "found": done})

    def opened(self, window: Window) -> None:
        """Capture what the step starts from."""
        self.spent, self.stopwatch = 0.0, time.perf_counter()
        self._computed.clear()
        record = StepRecord(window.number, began=time.monotonic())
        window.content = OpenStep(record)
        if self._orders.watch:
            self._observe(record)
            window.content.shot = self.capture.shot(window.number, self._frame)
            window.content.weights = window.content.shot.state.weights
        elif self._windows.updating:
            window.content.weights = self.capture.weights(window.number)

    def micro_begins(self, window: Window) -> None:
        """Begin the record of a micro-step."""
        number = len(window.micros)
        self._stop_at("micro", window.number, number)
        content: OpenStep = window.content
        generators = {}
        if self._orders.watch:
            generators = content.shot.state.rng if number == 1 else global_generators()
        content.record.micro_steps.append(MicroStep(rng=generators, within_update=self._windows.updating))

    def closed(self, window: Window) -> None:
        """Write the step."""
        content: OpenStep = window.content
        record = content.record
        content.complete(self.capture)
        if not self._ended:
            content.add_durable(self._durable_changes())
        record.probe_seconds = self.spent + time.perf_counter() - self.stopwatch
        self._recorder.step(record)
        if self._orders.watch and content.saw_no_forward():
            self.not_followed("forward", NO_FORWARD)
        for path in self._durable.reads():
            self._event("read", {"path": path})
        for sentence in (*self.loaders.not_followed, *self._durable.not_followed):
            self.not_followed("data" if sentence in self.loaders.not_followed else "durable", sentence)

    def idle(self, optimizer: Any) -> None:
        """Record an optimizer call that was no step."""
        self._event("idle-update", {"optimizer": _name_of(optimizer, self.capture)})

    def changed(self, window: Window) -> bool:
        """Return whether the weights differ from those the window began with."""
        content: OpenStep = window.content
        now = self.capture.weights(window.number)
        return (now and now.digest) != (content.weights and content.weights.digest)

    # -- details ---------------------------------------------------------------------------------------------

    def _content(self) -> OpenStep | None:
        window = self._windows.window
        return window.content if window is not None else None

    def _event(self, name: str, detail: dict[str, Any]) -> None:
        self._recorder.event(name, self._windows.steps, detail)

    def _tell(self, name: str, point: str) -> None:
        handler = signal.getsignal(signal.SIGTERM)
        self._event(name, {"point": point, "handles_sigterm": handler not in {signal.SIG_DFL, None}})

    def _stop_at(self, where: str, step: int, micro: int = 0) -> None:
        if self._parking.stop_at(where, step, micro, rank=self._recorder.rank):
            self.stopwatch = time.perf_counter()  # waiting is not the probe's work

    def _settle(self) -> None:
        """Complete the header with what is known only when training begins."""
        self._settled = True
        self._recorder.settle_rank()
        parameters = self.capture.models.parameters(self.capture.optimizers.alive())
        device = str(parameters[0][1].device) if parameters else ""
        self._event("device", {"device": device, "versions": surroundings.versions()})

    def _observe(self, record: StepRecord) -> None:
        if self._frame is None:
            return
        found = reach.observe(self._frame)
        record.values, record.generators = found.values, found.generators
        for item in found.untracked:
            self._recorder.event_once("untracked", self._windows.steps, item)

    def _note_inputs(self, inputs: tuple[Any, ...]) -> None:
        content = self._content()
        if content is not None:
            digests = [tensor_digest(tensor) for tensor in self._computed.data_among(tensors_in(*inputs))]
            content.add_inputs(digests, self.loaders.samples_for(digests) if digests else None)

    def _notice_unseen_update(self) -> None:
        """Find updates that no hook reports (an optimizer of its own kind): weights that changed between forwards."""
        window = self._windows.window
        if window is None or window.updates or not window.micros or not window.micros[-1].backward:
            return
        number = len(window.micros)
        due = self._unseen or (window.number <= _SUSPICIOUS_WINDOWS and number & (number - 1) == 0)
        if self._windows.updating or not due or not self._orders.watch or not self.changed(window):
            return
        self._unseen = True
        self.not_followed(
            "optimizer", "weights changed between two forwards without a call of a torch.optim.Optimizer"
        )
        self._windows.unseen_update(UNSEEN)
        window.content.add_unseen_update()
        self._note_weights(window.content)

    def _update_ends(self, optimizer: Any, *, applied: bool) -> None:
        window = self._windows.window
        before = len(window.updates) if window is not None else 0
        self._windows.update_ends(id(optimizer), applied=applied)
        if not self._windows.updating:
            self._call_frame = None
        if window is None or len(window.updates) == before:
            return
        content: OpenStep = window.content
        content.add_update(optimizer, applied=applied)
        if self._orders.marks:
            set_mark(self._recorder.rank, window.number)
        if not self.backwards:
            self._note_weights(content)

    def _note_weights(self, content: OpenStep) -> None:
        content.record.ended = time.monotonic()
        if self._orders.watch:
            content.record.weights_after = self.capture.weights(content.record.index)
            content.add_durable(self._durable_changes())

    def _park_before_update(self, closure: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        window = self._windows.window
        if window is None or window.updates or not self._parking.expects("update", window.number):
            return None
        park = functools.partial(self._stop_at, "update", window.number)
        if callable(closure):
            return after_closure(closure, park, arguments, keywords)
        park()
        return None

    def _forget_failed_call(self, frame: FrameType) -> None:
        """Forget an optimizer call that raised: its frame is no longer among those that run."""
        if self._call_frame is None:
            return
        running: FrameType | None = frame
        while running is not None and running is not self._call_frame:
            running = running.f_back
        if running is None:
            self._windows.update_failed()
            self._call_frame = None

    def _durable_changes(self) -> list[str]:
        return self._durable.changes() if self._orders.watch else []

    def _write_end(self, why: str) -> None:
        steps = self._windows.steps
        if self._orders.list_modules and steps:
            surroundings.list_modules(self._folder)
        record = EndRecord(why, steps, time.monotonic())
        if self._orders.watch and steps:
            self.capture.settle([])
            record.state = self.capture.state(self.capture.shot(steps + 1, self._frame))
            record.durable = self._durable_changes()
            record.values = reach.observe(self._frame).values if self._frame is not None else {}
        self._recorder.end(record)


def _name_of(identity: int, capture: Capture) -> str:
    return next((type(item).__name__ for item in capture.optimizers.alive() if id(item) == identity), "")
