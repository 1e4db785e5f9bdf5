"""The journals that the verbs of ``samestep bundle`` keep beside the project."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from samestep.cli.commands import keep_from_git, project_root

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.bundle.attempts import Attempt
    from samestep.bundle.bundles import Bundle
    from samestep.bundle.decisions import Decision
    from samestep.journal import Journal


def open_journal(name: str) -> Journal:
    """Begin the journal of that name beside the project.

    Raises:
        JournalError, OSError: it cannot be written.
    """
    from samestep.journal import Journal

    state = project_root(Path.cwd()) / ".samestep"
    journal = Journal.open(state / "journal" / name, name)
    keep_from_git(state)
    return journal


def attempt_journal(decision: Decision, attempt: Attempt) -> Journal:
    """Begin the journal of an attempt, with what was decided."""
    journal = open_journal(attempt.id)
    resumed = attempt.newest.bundle.id if attempt.newest else None
    journal.append("attempt-started", run=decision.run, ordinal=attempt.ordinal, number=attempt.number)
    journal.append("decision", **msgspec.to_builtins(decision), continued=resumed)
    return journal


class RestoreNotes:
    """The journal of one restore. That it cannot be written keeps nothing from being restored, and is said.

    Attributes:
        path: of the journal; None where there is none.
    """

    def __init__(self) -> None:
        from samestep.bundle.identity import new_attempt_id
        from samestep.errors import SamestepError

        self._journal: Journal | None = None
        try:
            self._journal = open_journal(f"restore-{new_attempt_id()[2:]}")
        except (SamestepError, OSError) as error:
            self._give_up(str(error))
        self.path = self._journal.path if self._journal else None

    def decided(self, decision: Decision, *, named: str | None = None) -> None:
        """Note what was decided, and the bundle that was taken instead because the user named it."""
        self._note("decision", **msgspec.to_builtins(decision), named=named)

    @contextlib.contextmanager
    def restoring(self, bundle: Bundle) -> Iterator[None]:
        """Note that a bundle is being read, and what became of it."""
        self._note("restore-begun", bundle=bundle.id, step=bundle.step)
        outcome = "interrupted"
        try:
            yield
            outcome = "done"
        except Exception as error:
            outcome = f"{getattr(error, 'slug', type(error).__name__)}: {error}"
            raise
        finally:
            self._note("restore-ended", bundle=bundle.id, step=bundle.step, outcome=outcome)

    def close(self) -> None:
        """Make it durable and let go of it."""
        if self._journal is not None:
            self._guarded(self._journal.close)

    def _note(self, event: str, **values: Any) -> None:
        if self._journal is not None:
            self._guarded(self._journal.append, event, **values)

    def _guarded(self, act: Any, *args: Any, **values: Any) -> None:
        from samestep.errors import SamestepError

        try:
            act(*args, **values)
        except (SamestepError, OSError) as error:
            self._journal = None
            self._give_up(str(error))

    def _give_up(self, why: str) -> None:
        click.echo(f"beware: what was decided is in no journal: {why}", err=True)
