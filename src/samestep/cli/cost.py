"""``samestep cost``: does interruptible capacity pay for this run, how late may it get, and how often to save."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib.util
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samestep import __version__
from samestep.cli.commands import new_run_id, prepare_run_folder, project_root
from samestep.cli.cost_inputs import DURATION, Given, case_flags, first_hour_option, gather
from samestep.cli.cost_offers import (
    Choosing,
    offer_flags,
    offers_option,
    one_offer,
    table_notes,
    wanted_flags,
)
from samestep.cli.stores import JSON, print_json
from samestep.config import suggestion
from samestep.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from samestep.cost.result import CostResult

DEFAULT = "predict"

EPILOG = """\b
Examples:
  samestep cost example
  samestep cost case.toml --deadline 36h
  samestep cost --run runs/pilot --steps 20000 --spot 1.10 --on-demand 3.00
  samestep cost --steps 36000 --step-seconds 1 --save-seconds 20 --restart-seconds 4min \\
    --mean-life 4h --spot 1.10 --on-demand 3.00
"""


class _WithDefault(click.Group):
    """A group that takes what is none of its verbs for the input of its main one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the main verb before arguments that name no verb."""
        if args and args[0] not in self.commands and args[0] not in ctx.help_option_names:
            _refuse_misspelt(args[0], self.commands)
            args = [DEFAULT, *args]
        return super().parse_args(ctx, args)


@click.group(cls=_WithDefault, epilog=EPILOG, no_args_is_help=True)
def cost() -> None:
    """Say whether interruptible capacity pays for a run, how late it may get, and how often to save.

    "samestep cost CASE.toml" is short for "samestep cost predict CASE.toml"; flags may stand for the file.
    """
    if importlib.util.find_spec("scipy") is None:
        raise UsageError("samestep cost needs scipy", hint='pip install "samestep[cost]"')


_OUT = click.option(
    "--out", type=click.Path(path_type=Path), metavar="FOLDER", help="Where cost.json and cost.html go."
)


@cost.command(short_help="Predict money and time of a run.")
@click.argument("file", metavar="[CASE.toml]", required=False, type=click.Path(path_type=Path))
@click.option("--run", metavar="ROOT", help="Measured by the run whose bundles are at ROOT.")
@click.option(
    "--drill", type=click.Path(path_type=Path), metavar="FILE", help="Measured by a drill: its drill.json."
)
@click.option(
    "--measured",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Measured before (samestep.measured/1).",
)
@offers_option
@wanted_flags
@case_flags
@_OUT
@JSON
@click.pass_context
def predict(
    context: click.Context,
    /,
    *,
    file: Path | None,
    run: str | None,
    drill: Path | None,
    measured: Path | None,
    offers: tuple[Path, ...],
    choosing: Choosing,
    out: Path | None,
    as_json: bool,
    **flags: Any,
) -> ExitCode:
    """Predict what a run costs and when it ends, on spot and on on-demand capacity.

    Times are seconds, or such as 90s, 10min, 1h30min. A flag beats the file, which beats what was measured.

    Exit status: 0 if spot or on-demand is decided, 4 if it is not, 2 if an input cannot be used.
    """
    from samestep.cost.answering import answer

    given = Given(file, run, drill, measured, offers, choosing)
    gathered = gather(given, flags)
    result = answer(
        gathered.case,
        actual=gathered.actual,
        notes=gathered.notes,
        provenance=_provenance(gathered.files),
    )
    return _shown(context, result, out, as_json=as_json)


@cost.command(short_help="The ten-hour example.")
@_OUT
@JSON
@click.pass_context
def example(context: click.Context, /, out: Path | None, *, as_json: bool) -> ExitCode:
    """Ten normal hours at half the rate that become fourteen billed hours: 30 % less, not 50 %."""
    from samestep.cost.answering import answer
    from samestep.cost.example import NOTE, ten_hours

    result = answer(ten_hours(), notes=[NOTE], provenance=_provenance([]))
    return _shown(context, result, out, as_json=as_json)


@cost.command(short_help="What a run has come to so far.")
@click.argument("root")
@offers_option
@wanted_flags
@offer_flags
@first_hour_option
@click.option(
    "--on-demand-attempt",
    "on_demand_attempts",
    multiple=True,
    type=click.IntRange(min=1),
    metavar="N",
    help="The N-th attempt ran on on-demand capacity.",
)
@click.option(
    "--boot-seconds", type=DURATION, default=0.0, metavar="TIME", help="Billed before an attempt begins."
)
@JSON
def actual(
    root: str,
    *,
    offers: tuple[Path, ...],
    choosing: Choosing,
    first_hour: bool | None,
    on_demand_attempts: tuple[int, ...],
    boot_seconds: float,
    as_json: bool,
    **flags: Any,
) -> ExitCode:
    """Account for the run whose bundles are at ROOT, from its journals, in the rows of the prediction.

    Of the offers in files exactly one must be meant: the one that the run was paid by.
    """
    from msgspec.structs import replace

    from samestep.cost.records.actual import actual_of
    from samestep.report.cost.actual import plain_actual, render_actual

    reads = [choosing.read(path) for path in offers]
    found = actual_of(
        root,
        offer=one_offer(flags, reads),
        on_demand_attempts=on_demand_attempts,
        boot_seconds=boot_seconds,
        first_hour=bool(first_hour),
    )
    found = replace(found, notes=[*found.notes, *(note for read in reads for note in table_notes(read))])
    if as_json:
        print_json("cost-actual", **plain_actual(found))
    else:
        click.echo(render_actual(found), nl=False)
    return ExitCode.HOLDS


@cost.command("import", short_help="Read a catalogue or a price history.")
@click.argument("file", type=click.Path(path_type=Path))
@wanted_flags
@click.option(
    "--priced",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DAY",
    help="Day of the prices, where the file does not say it.",
)
@click.option(
    "--most",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    metavar="N",
    help="Offers kept at most.",
)
@click.option(
    "--to", "target", type=click.Path(path_type=Path), metavar="FILE", help="Write them as .csv or .toml."
)
@click.option(
    "--odd",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write every odd row as CSV, not only the first.",
)
@JSON
def import_offers(
    file: Path,
    *,
    choosing: Choosing,
    priced: dt.datetime | None,
    most: int,
    target: Path | None,
    odd: Path | None,
    as_json: bool,
) -> ExitCode:
    """Read offers from FILE: a SkyPilot catalogue (v7, v8), an AWS spot price history, or an own table.

    Every row that needs a word is reported with what became of it; nothing is guessed. A price without a date stays
    without one.
    """
    from samestep.cost.offers import write_offers
    from samestep.report.cost.offers import plain_read, render_read

    day = priced.date() if priced else None
    choosing = dataclasses.replace(choosing, priced=day, most=most)
    read = choosing.read(file) if odd is None else choosing.read_noting(file, odd)
    if target is not None:
        write_offers(read.offers, target)
    if as_json:
        print_json("cost-offers", **plain_read(read))
    else:
        click.echo(render_read(read), nl=False)
        if target is not None:
            click.echo(f"wrote {len(read.offers):,} offers to {target}", err=True)
    return ExitCode.HOLDS if read.offers else ExitCode.NOTHING_RAN


def _shown(context: click.Context, result: CostResult, out: Path | None, *, as_json: bool) -> ExitCode:
    """Write the files of an answer and print it."""
    from samestep.report.cost import encode_cost, render_cost, write_cost
    from samestep.report.cost.words import exit_code

    paths = write_cost(result, out or _own_folder())
    if as_json:
        click.echo(encode_cost(result), nl=False)
    else:
        colour = sys.stdout.isatty() if context.color is None else context.color
        width = shutil.get_terminal_size((100, 24)).columns
        click.echo(
            render_cost(result, colour=bool(colour), width=width, page=_relative(paths["html"])), nl=False
        )
    return exit_code(result)


def _refuse_misspelt(word: str, verbs: Iterable[str]) -> None:
    """Refuse what is no file and looks like one of the verbs."""
    hint = suggestion(word, verbs)
    if hint and not word.startswith("-") and not Path(word).exists():
        raise UsageError(f"there is no verb and no file {word!r}", hint=hint)


def _own_folder() -> Path:
    folder = project_root(Path.cwd()) / ".samestep" / "costs" / new_run_id()
    prepare_run_folder(folder)
    return folder


def _relative(path: Path) -> str:
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def _provenance(files: list[str]) -> dict[str, Any]:
    return {
        "samestep": __version__,
        "python": platform.python_version(),
        "numpy": metadata.version("numpy"),
        "scipy": metadata.version("scipy"),
        "made": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "files": files,
    }
