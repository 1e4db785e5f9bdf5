"""``samestep report``: show a finished drill again, without running anything."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from samestep.cli.commands import project_root
from samestep.report import encode_result, find_result, load_result, render_terminal
from samestep.report.stored import write_atomically

if TYPE_CHECKING:
    from samestep.drill.result import DrillResult

FORMATS = ("text", "json", "html", "junit", "markdown", "github")


@click.command()
@click.argument("run", required=False)
@click.option("--format", "form", type=click.Choice(FORMATS), default="text", help="What to show it as.")
@click.option("--json", "form", flag_value="json", help="The same as --format json.")
@click.option(
    "--output", type=click.Path(path_type=Path), help="Write it to FILE instead of standard output."
)
@click.pass_context
def report(ctx: click.Context, run: str | None, form: str, output: Path | None) -> None:
    """Show a finished drill again.

    RUN is a run id, a run's folder or a drill.json; without it, the latest drill is shown.
    """
    source = find_result(run, project_root(Path.cwd()) / ".samestep")
    result = load_result(source)
    if output is None:
        click.echo(_rendered(result, form, source, colour=_wants_colour(ctx)), nl=False)
        return
    write_atomically(output, _rendered(result, form, source, colour=False).encode())
    click.echo(f"wrote {output}", err=True)


def _rendered(result: DrillResult, form: str, source: Path, *, colour: bool) -> str:
    """Return the text of the wanted form; the renderers of files are loaded only when one is wanted."""
    if form == "text":
        page = source.parent / "report.html"
        width = shutil.get_terminal_size((100, 24)).columns
        return render_terminal(result, colour=colour, width=width, report=str(page) if page.is_file() else "")
    if form == "json":
        return encode_result(result).decode()
    if form == "html":
        from samestep.report.html import render_html

        return render_html(result)
    if form == "junit":
        from samestep.report.junit import render_junit

        return render_junit(result)
    if form == "github":
        from samestep.report.github import render_annotations

        return render_annotations(result)
    from samestep.report.markdown import render_markdown

    return render_markdown(result)


def _wants_colour(ctx: click.Context) -> bool:
    """Colour follows what the user said (the context carries NO_COLOR and FORCE_COLOR), else the terminal."""
    return sys.stdout.isatty() if ctx.color is None else ctx.color
