"""One attempt while it trains: what happens at its boundaries, and how it ends."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from samestep.contract.sizes import readable_bytes
from samestep.errors import SamestepError
from samestep.state.errors import CHANGED_MEANWHILE

from .accounts import accounts_of, lives_of
from .costs import StepCosts
from .errors import SaveFailed
from .progress import Pace
from .stopping import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .boundary import Boundary
    from .capturing import Capturing
    from .counters import Counters
    from .gradients import OpenWindow
    from .overlapping import Overlapping
    from .policies import Timer
    from .progress import Progress
    from .ranks import Agreement, AgreementOfOne
    from .saver import Facts, Outcome, Saver
    from .scalars import Scalars
    from .session import Session
    from .stopping import Stopping

_NOTE_SECONDS = 5.0
"""How often the journal is told which steps were executed: what a lost machine may have done since is not known."""

_DUE, _FAILED = 2, 3
"""Which of the flags that ranks agree on say that a save is due, and that one has failed."""


class Life:
    """The moments of an attempt.

    Args:
        session: its store and journal.
        saver: makes its bundles.
        capturing: takes its state.
        boundary: knows when a step is finished.
        stopping: hears of notices.
        agreed: makes the ranks agree on what some noticed.
        timer: says when a save is due.
        counters: looks for what nobody has named.
        progress: shows lines.
        scalars: what was logged.
        facts: returns what a bundle of this moment says.
        tolerant: whether the run goes on after a save has failed.
        overlap: whether copying the state may overlap with the next forward and backward.
        background: whether saves are written in the background.
        window: the open accumulation window.
        inside_windows: whether saves may be made inside of it, too.
        step: completed updates.
        saved_step: of the bundle that the attempt went on from; -1 when there is none.
    """

    def __init__(
        self,
        *,
        session: Session,
        saver: Saver,
        capturing: Capturing,
        boundary: Boundary,
        stopping: Stopping,
        agreed: Agreement | AgreementOfOne,
        timer: Timer,
        counters: Counters,
        progress: Progress,
        scalars: Scalars,
        facts: Callable[[], Facts],
        tolerant: bool,
        overlap: Overlapping,
        background: bool,
        window: OpenWindow,
        inside_windows: bool,
        step: int,
        saved_step: int,
    ) -> None:
        self.session, self.progress, self.scalars = session, progress, scalars
        self.step = step
        self._window, self._inside_windows = window, inside_windows
        self._saver, self._capturing, self._boundary = saver, capturing, boundary
        self._stopping, self._agreed, self._timer, self._facts = stopping, agreed, timer, facts
        self._tolerant, self._overlap, self._background = tolerant, overlap, background
        self._counters, self._pace, self._costs = counters, Pace(step), StepCosts()
        self._noted = self._stepped = time.monotonic()
        self._saved_at = (saved_step, self.micro_steps)
        self._asked_at: tuple[int, int] | None = None
        self._failed: Outcome | None = None
        self._notice: Notice | None = None
        self._said: set[str] = set()
        self._due = self._wanted = self._wanted_whole = False
        self.inside = self.ended = self._prepared = False

    # -- boundaries --------------------------------------------------------------------------------------------

    def passed(self) -> bool:
        """Take note that the training step came back; return whether an update was finished."""
        self.inside = False
        finished = self._boundary.passed()
        self._window.micro_steps = 0 if finished else self.micro_steps + 1
        if finished:
            self.step += 1
            self._finished_step()
            self._counters.look()
            if not self._prepared:
                self._prepare()
        return finished

    def batches(self, source: Iterable[Any]) -> Iterator[Any]:
        """Yield the batches that ``source`` gives, each of which is used inside a step."""
        for batch in self._pace.batches(source):
            self.inside = True
            yield batch

    def look(self) -> None:
        """See what has come in since the last boundary: outcomes of saves, notices, the time.

        Raises:
            SaveFailed: a save has failed, on any rank.
        """
        if (outcome := self._saver.finished()) is not None:
            self._settle(outcome)
        heard = self._stopping.notice
        interrupted = heard is not None and heard.exit_code != Notice.exit_code
        timed = self._timer.needs_clock and self._is_due()
        flags = (heard is not None and not interrupted, interrupted, timed, self._failed is not None)
        notice, interrupt, due, failed = self._agreed.propose(flags)  # as _DUE and _FAILED count them
        if failed:
            self._meet_failure()
        if notice or interrupt:
            self._notice = heard or Notice("another rank", exit_code=130 if interrupt else Notice.exit_code)
        self._due = due if self._timer.needs_clock else self._is_due()

    @property
    def due(self) -> bool:
        """Whether a save is due, by the policy or by a notice, and can be made now."""
        return (self._due or self._notice is not None) and self._may_save

    @property
    def _may_save(self) -> bool:
        """Whether this is a boundary, or what was gathered since is captured, too.

        Between a batch and its step the position in the data is already further than the weights.
        """
        if self.inside or self._boundary.pending:
            return False
        return self.micro_steps == 0 or self._inside_windows

    @property
    def micro_steps(self) -> int:
        """Micro-steps of the accumulation window that is open."""
        return self._window.micro_steps

    @property
    def notice(self) -> Notice | None:
        """The notice that all ranks know of."""
        return self._notice

    def _is_due(self) -> bool:
        return self._wanted or self._timer.due(self.step, time.monotonic())

    def _prepare(self) -> None:
        """After the first update there is all the state that there will be: let the first save find memory for it."""
        self._prepared = True
        if self._background and self._asked_at is None:
            with contextlib.suppress(SamestepError):  # the save that it keeps from being made says so
                self._capturing.prepare()

    def _finished_step(self) -> None:
        now = time.monotonic()
        self._pace.finished(self.step)
        self.session.executed(self.step)
        self._costs.step(now - self._stepped, in_flight=self._saver.in_flight)
        self._stepped = now
        if now - self._noted >= _NOTE_SECONDS:
            self._note_steps(now)
        self.progress.step(self.step, now, self.scalars.latest)

    def _note_steps(self, now: float) -> None:
        self._noted = now
        self._pace.pause()
        taken = self._pace.take()
        if taken is not None:
            said = taken._asdict()
            self.session.note("steps", **{name: value for name, value in said.items() if value is not None})

    # -- saves -------------------------------------------------------------------------------------------------

    def save(self, *, wait: bool) -> None:
        """Save the state of now, or inside a step that of the boundary that comes next.

        Args:
            wait: return when the bundle exists.

        Raises:
            SaveFailed: this save or the one before it has failed.
        """
        if not self._may_save:
            self._wanted, self._wanted_whole = True, self._wanted_whole or wait
            return
        self._save(wait=wait or self._wanted_whole)

    def _save(self, *, wait: bool) -> None:
        self._wanted = self._wanted_whole = False
        asked = time.monotonic()
        self._note_steps(asked)
        self.session.note("save-asked", step=self.step, waits=wait or not self._background)
        before = self._saver.wait()  # one in flight: the training waits rather than memory grows
        if before is not None:
            self._settle(before)
            self._raise_failure()
            self._agreed.settle(_FAILED)
        try:
            snapshot = self._capturing.take(overlap=self._overlap.allowed and not wait)
        except BaseException:
            self.session.note("save-failed", step=self.step, reason="the state could not be captured")
            raise
        self._boundary.guard(self._overlap.guard(snapshot))
        self.session.note("save-state-ready", step=self.step)
        self._timer.saved(self.step, asked)
        self._agreed.settle(_DUE)
        self._asked_at = (self.step, self.micro_steps)
        self._saver.start(snapshot, self._facts(), asked=asked, state_ready=time.time())
        self._due = False
        if wait or not self._background:
            outcome = self._saver.wait()
            if outcome is not None:
                self._settle(outcome)
            self._raise_failure()
        self._pace.begin()
        self._stepped = time.monotonic()

    def wait(self) -> None:
        """Return when the save in flight is a bundle.

        Raises:
            SaveFailed: it has failed.
        """
        outcome = self._saver.wait()
        if outcome is not None:
            self._settle(outcome)
        self._raise_failure()

    @property
    def copying(self) -> str:
        """How a save takes the state: ``stage`` or ``overlap``."""
        return "overlap" if self._overlap.wanted else "stage"

    def _settle(self, outcome: Outcome) -> None:
        """Take note of what became of a save."""
        if outcome.error is not None:
            self._failed = outcome
            self._timer.failed(self.step)
            return
        bundle = outcome.bundle
        if bundle is None:
            return
        self._saved_at = self._asked_at or (outcome.step, 0)
        added = self._costs.of_save(outcome.ready - outcome.asked)
        self._timer.learned(added, outcome.done - outcome.asked)
        self.progress.say(
            f"saved {bundle.id}, step {bundle.step}: {readable_bytes(bundle.manifest.size)}, training stood still "
            f"{outcome.ready - outcome.asked:.3f} s, committed after {outcome.done - outcome.asked:.2f} s"
        )
        if outcome.note:
            self.progress.say(outcome.note)

    def _meet_failure(self) -> None:
        """Raise what has come here of a save that some rank knows to have failed, once that is known."""
        if self._failed is None and (outcome := self._saver.wait()) is not None:
            self._settle(outcome)
        self._raise_failure()

    def _raise_failure(self) -> None:
        """Raise what a save has failed with, unless the run is to go on all the same.

        Raises:
            SaveFailed: it is not, or a newer attempt has taken over.
        """
        failed, self._failed = self._failed, None
        if failed is None or failed.error is None:
            return
        error = failed.error
        saved = self._saved_at[0]
        kept = f"the bundle of step {saved} is the newest" if saved >= 0 else "there is no bundle yet"
        text = getattr(error, "message", f"{type(error).__name__}: {error}")
        slug = getattr(error, "slug", "")
        tolerable = self._tolerant or (slug == CHANGED_MEANWHILE and self._overlap.refused())
        if tolerable and slug != "attempt-fenced":
            self.progress.say(
                f"warning: the save of step {failed.step} failed ({text}); {kept}, training goes on"
            )
            return
        hint = getattr(error, "hint", "")
        raise SaveFailed(f"the save of step {failed.step} failed: {text}; {kept}", hint=hint) from error

    # -- ends --------------------------------------------------------------------------------------------------

    def leave(self, notice: Notice) -> NoReturn:
        """Make sure that the state of now is in a bundle, and end the process."""
        self.session.note("notice", source=notice.source, step=self.step)
        self.progress.say(f"{notice.source}: saving step {self.step} and leaving")
        self._secure()
        self.end("notice")
        sys.exit(notice.exit_code)

    def settle(self) -> None:
        """The loop was left after a batch was given, or an update was made: take note of that as of any other step."""
        if self.inside or self._boundary.pending:
            self.passed()

    def finish(self, outcome: str) -> None:
        """The loop is over, because the run is ``finished`` or was ``closed``: make sure that its state is saved."""
        if self.micro_steps and not self._inside_windows:
            self.progress.say(
                f"ended inside step {self.step + 1}: after step {self.step} {self.micro_steps} micro-steps were made "
                "and no update; a restart begins there, at run.micro_steps"
            )
        self._secure()
        self.end(outcome)

    def leave_behind(self) -> None:
        """The process ends and nobody has closed the run: let the save in flight become a bundle, and say so."""
        if self.ended:
            return
        if self._stopping.at_once:
            self.session.note("ended", outcome="interrupted", step=self.step)
            self.session.close()
            return
        self.end("left")
        if self._saved_at[0] < self.step:
            self.progress.say(
                f"the loop was left at step {self.step} without run.close(): step {max(0, self._saved_at[0])} is saved"
            )

    def _secure(self) -> None:
        pending = self._saver.wait()
        if pending is not None:
            self._settle(pending)
        failed, self._failed = self._failed, None
        if failed is not None:
            self.progress.say(f"the save of step {failed.step} failed ({failed.error}); saving again")
        if self._saved_at != (self.step, self.micro_steps):
            self._save(wait=True)

    def end(self, outcome: str) -> None:
        """Say and record how the attempt ends; nothing is saved any more."""
        if self.ended:
            return
        self.ended = True
        try:
            self._wind_up(outcome)
        finally:
            self._stopping.stop()
            self._boundary.close()
            self.session.close()

    def _wind_up(self, outcome: str) -> None:
        pending = self._saver.wait()
        if pending is not None:
            self._settle(pending)
        self._note_steps(time.monotonic())
        self.session.note("ended", outcome=outcome, step=self.step)
        self.scalars.flush()
        self._say_problems()
        self.progress.close()
        if self.session.attempt is not None:
            self._sum_up()

    def _sum_up(self) -> None:
        try:
            lives = lives_of(self.session.store, self.session.folder)
        except SamestepError as error:
            self.progress.say(f"what the run came to is not known: {error.message}")
            return
        self.progress.say(accounts_of(lives, self.step, time.time()).text())

    def log(self, values: Mapping[str, Any]) -> None:
        """Keep numbers of the step that is going on."""
        self.scalars.log(self.step + 1, values)
        self._say_problems()

    def _say_problems(self) -> None:
        """Say once what could not be written beside the bundles; none of it stops a training."""
        for problem in (self.scalars.problem, self.session.problem):
            if problem and problem not in self._said:
                self._said.add(problem)
                self.progress.say(f"warning: {problem}")
