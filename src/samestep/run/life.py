"""One attempt while it trains: what happens at its boundaries, and how it ends."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

from .accounts import accounts_of, lives_of
from .costs import StepCosts
from .errors import SaveFailed
from .progress import Pace
from .stopping import Notice

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .boundary import Boundary
    from .capturing import Capturing
    from .gradients import OpenWindow
    from .policies import Timer
    from .progress import Progress
    from .ranks import Agreement, AgreementOfOne
    from .saver import Facts, Outcome, Saver
    from .scalars import Scalars
    from .session import Session
    from .stopping import Stopping

_NOTE_SECONDS = 5.0
"""How often the journal is told which steps were executed: what a lost machine may have done since is not known."""


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
        progress: shows lines.
        scalars: what was logged.
        facts: returns what a bundle of this moment says.
        tolerant: whether the run goes on after a save has failed.
        overlap: whether copying the state may overlap with the next forward and backward.
        background: whether saves are written in the background.
        window: the open accumulation window, where it is captured.
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
        progress: Progress,
        scalars: Scalars,
        facts: Callable[[], Facts],
        tolerant: bool,
        overlap: bool,
        background: bool,
        window: OpenWindow | None,
        step: int,
        saved_step: int,
    ) -> None:
        self.session, self.progress, self.scalars = session, progress, scalars
        self.step = step
        self.micro_steps = 0 if window is None else window.micro_steps
        self._window = window
        self._saver, self._capturing, self._boundary = saver, capturing, boundary
        self._stopping, self._agreed, self._timer, self._facts = stopping, agreed, timer, facts
        self._tolerant, self._overlap, self._background = tolerant, overlap, background
        self._pace, self._costs = Pace(step), StepCosts()
        self._noted = self._stepped = time.monotonic()
        self._saved_at = (saved_step, self.micro_steps)
        self._asked_at: tuple[int, int] | None = None
        self._failed: Outcome | None = None
        self._notice: Notice | None = None
        self._said: set[str] = set()
        self._due = self._wanted = self._wanted_whole = False
        self.inside = self.ended = False

    # -- boundaries --------------------------------------------------------------------------------------------

    def passed(self) -> bool:
        """Take note that the training step came back; return whether an update was finished."""
        self.inside = False
        finished = self._boundary.passed()
        self.micro_steps = 0 if finished else self.micro_steps + 1
        if self._window is not None:
            self._window.micro_steps = self.micro_steps
        if finished:
            self.step += 1
            self._finished_step()
        return finished

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
        notice, interrupt, due, failed = self._agreed.propose(flags)
        if failed:
            self._raise_failure()
        if notice or interrupt:
            self._notice = heard or Notice("another rank", exit_code=130 if interrupt else Notice.exit_code)
        self._due = due if self._timer.needs_clock else self._is_due()

    @property
    def due(self) -> bool:
        """Whether a save is due, by the policy or by a notice, and can be made now."""
        return self._may_save and (self._due or self._notice is not None)

    @property
    def _may_save(self) -> bool:
        """Whether this is a boundary, or what was gathered since is captured, too.

        Between a batch and its step the position in the data is already further than the weights.
        """
        if self.inside or self._boundary.pending:
            return False
        return self.micro_steps == 0 or self._window is not None

    @property
    def notice(self) -> Notice | None:
        """The notice that all ranks know of."""
        return self._notice

    def _is_due(self) -> bool:
        return self._wanted or self._timer.due(self.step, time.monotonic())

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
            first, last, seconds = taken
            self.session.note("steps", first=first, last=last, seconds=seconds)

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
        wait = wait or self._wanted_whole
        self._wanted = self._wanted_whole = False
        asked = time.monotonic()
        self._note_steps(asked)
        self.session.note("save-asked", step=self.step)
        before = self._saver.wait()  # one in flight: the training waits rather than memory grows
        if before is not None:
            self._settle(before)
            self._raise_failure()
        try:
            snapshot = self._capturing.take(overlap=self._overlap and not wait)
        except BaseException:
            self.session.note("save-failed", step=self.step, reason="the state could not be captured")
            raise
        self._boundary.guard(snapshot.wait_staged)
        self.session.note("save-state-ready", step=self.step)
        self._timer.saved(self.step, asked)
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

    def _settle(self, outcome: Outcome) -> None:
        """Take note of what became of a save."""
        if outcome.error is not None:
            self._failed = outcome
            return
        bundle = outcome.bundle
        if bundle is None:
            return
        self._saved_at = self._asked_at or (outcome.step, 0)
        added = self._costs.of_save(outcome.ready - outcome.asked)
        self._timer.learned(added, outcome.done - outcome.asked)
        self.progress.say(
            f"saved {bundle.id}, step {bundle.step}: {_size(bundle.manifest.size)}, training stood still "
            f"{outcome.ready - outcome.asked:.3f} s, committed after {outcome.done - outcome.asked:.2f} s"
        )
        if outcome.note:
            self.progress.say(outcome.note)

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
        fenced = getattr(error, "slug", "") == "attempt-fenced"
        if self._tolerant and not fenced:
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

    def finish(self, outcome: str) -> None:
        """The loop is over, because the run is ``finished`` or was ``closed``: make sure that its state is saved."""
        if outcome == "finished" or self._may_save:
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
            self.save(wait=True)

    def end(self, outcome: str) -> None:
        """Say and record how the attempt ends; nothing is saved any more."""
        if self.ended:
            return
        self.ended = True
        pending = self._saver.wait()
        if pending is not None:
            self._settle(pending)
        self._note_steps(time.monotonic())
        self.session.note("ended", outcome=outcome, step=self.step)
        self.scalars.flush()
        self._say_problems()
        self.progress.close()
        if self.session.attempt is not None:
            lives = lives_of(self.session.store, self.session.folder)
            self.progress.say(accounts_of(lives, self.step, time.time()).text())
        self._stopping.stop()
        self._boundary.close()
        self.session.close()

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


def _size(size_bytes: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size_bytes >= factor:
            return f"{size_bytes / factor:.3g} {unit}"
    return f"{size_bytes} bytes"
