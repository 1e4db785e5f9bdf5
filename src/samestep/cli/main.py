"""``samestep VERB``: the entry point, its verbs, and what becomes of errors."""

from __future__ import annotations

import errno
import importlib
import os
import signal
import sys
import tempfile
import threading
import traceback
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

import click

from samestep import __version__
from samestep.config import suggestion
from samestep.contract.redaction import redacted
from samestep.errors import ExitCode, SamestepError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

VERBS: Final[Mapping[str, tuple[str, str]]] = {
    "drill": ("samestep.cli.drill:drill", "Prove that a restarted training run is the same run."),
    "inspect": (
        "samestep.cli.inspect:inspect",
        "Tell what a checkpoint can be used for, without loading it.",
    ),
    "report": ("samestep.cli.report:report", "Show a finished drill again."),
    "compare": ("samestep.cli.compare:compare", "Compare two traces step by step."),
    "bundle": (
        "samestep.cli.bundle:bundle",
        "Keep a run's recovery points: complete, verified, chosen for a stated reason.",
    ),
    "cost": (
        "samestep.cli.cost:cost",
        "Say whether spot capacity pays for a run, how late it may get, how often to save.",
    ),
    "crash": ("samestep.cli.crash:crash", "See every disk state that an interrupted save can leave."),
    "explain": ("samestep.cli.explain:explain", "Explain a finding: causes, fix, how to silence it."),
    "config": ("samestep.cli.config:config", "Show every setting and where its value came from."),
    "doctor": ("samestep.cli.doctor:doctor", "Tell what this machine can and cannot do."),
}
"""Where each verb lives, and its one-line help, so that ``samestep --help`` loads none of them."""

_SURROUNDINGS: Final = {
    errno.ENOSPC: "free some space there, or choose another folder",
    errno.EDQUOT: "free some space there, or choose another folder",
    errno.EACCES: "choose a folder that you may write to, or change its permissions",
    errno.EPERM: "choose a folder that you may write to, or change its permissions",
    errno.EROFS: "choose a folder that can be written",
}
"""Errors of the operating system that the user can act on, and how."""


class Terminated(KeyboardInterrupt):
    """SIGTERM arrived. Everything that cleans up after Ctrl-C cleans up after this, too."""

    exit_code = ExitCode.TERMINATED


class Verbs(click.Group):
    """A command group that imports a verb's module when the verb is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs in the order in which a user meets them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import and return the verb ``cmd_name``."""
        if cmd_name not in VERBS:
            return None
        module, _, attribute = VERBS[cmd_name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb, or name the nearest one."""
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            hint = suggestion(args[0], VERBS) or f"verbs: {', '.join(VERBS)}"
            raise UsageError(f"there is no verb {args[0]!r}", hint=hint)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the verbs from the table."""
        with formatter.section("Verbs"):
            formatter.write_dl([(name, text) for name, (_, text) in VERBS.items()])


@click.group(
    cls=Verbs, subcommand_metavar="VERB ...", context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="samestep")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """If this training run is cut off here, is the next step it takes the same step it would have taken?

    Put it in front of a training command and see:

        samestep drill -- python train.py --out {out}
    """
    ctx.color = _colour_wish(os.environ)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with an `ExitCode`; bad input never ends in a traceback."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        with _sigterm_raises():
            result = cli.main(args=arguments, prog_name="samestep", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt) as interrupt:
        return _interrupted(interrupt)
    except click.ClickException as error:
        return _misused(error)
    except SamestepError as error:
        return _refused(error)
    except OSError as error:
        return _surroundings(error)
    except Exception as error:  # noqa: BLE001 - the last resort, so that no user ever sees a traceback
        return _internal(error)
    return result if isinstance(result, int) else ExitCode.HOLDS


def _colour_wish(environ: Mapping[str, str]) -> bool | None:
    """Return True for colour, False for none, None to let the terminal decide."""
    if environ.get("NO_COLOR"):
        return False
    return True if environ.get("FORCE_COLOR") else None


@contextmanager
def _sigterm_raises() -> Iterator[None]:
    """Turn SIGTERM into an exception, so that children are ended and partial results are kept."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_terminated(_signum: int, _frame: FrameType | None) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, raise_terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupted(interrupt: BaseException) -> int:
    """Tell Ctrl-C from SIGTERM; click wraps both into its own exception."""
    click.echo("interrupted", err=True)
    signs = (interrupt, interrupt.__cause__, interrupt.__context__)
    return (
        ExitCode.TERMINATED if any(isinstance(sign, Terminated) for sign in signs) else ExitCode.INTERRUPTED
    )


def _misused(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return ExitCode.USAGE
    context = getattr(error, "ctx", None)
    _say(error.format_message(), f"{context.command_path if context else 'samestep'} --help")
    return ExitCode.USAGE


def _refused(error: SamestepError) -> int:
    _say(error.message, error.hint)
    _traceback_on_request()
    return error.exit_code


def _surroundings(error: OSError) -> int:
    """Report a full disk or a missing permission as what it is; anything else is our own failure."""
    if error.errno not in _SURROUNDINGS:
        return _internal(error)
    where = f": {error.filename}" if error.filename else ""
    _say(f"{(error.strerror or 'the system refused').lower()}{where}", _SURROUNDINGS[error.errno])
    _traceback_on_request()
    return ExitCode.USAGE


def _internal(error: Exception) -> int:
    """Keep the traceback in a file and ask for a report."""
    _say(
        f"samestep itself failed: {type(error).__name__}: {error}",
        f"please report it, with {_keep_traceback()} attached",
    )
    _traceback_on_request()
    return ExitCode.INTERNAL


def _keep_traceback() -> str:
    """Write the current traceback to a log file and return its path."""
    text = f"samestep {__version__}, Python {sys.version}\n{redacted(sys.argv)}\n\n{traceback.format_exc()}"
    try:
        handle, path = tempfile.mkstemp(prefix="samestep-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return "the output of SAMESTEP_DEBUG=1"
    return path


def _say(message: str, hint: str) -> None:
    colour = _colour_wish(os.environ)
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True, color=colour)
    if hint:
        click.echo(f"{click.style('hint:', fg='cyan', bold=True)} {hint}", err=True, color=colour)


def _traceback_on_request() -> None:
    if os.environ.get("SAMESTEP_DEBUG"):
        traceback.print_exc()


if __name__ == "__main__":
    main()
