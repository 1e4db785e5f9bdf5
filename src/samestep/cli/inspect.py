"""``samestep inspect``: what a checkpoint can be used for."""

from __future__ import annotations

import json
from pathlib import Path

import click

from samestep import __version__
from samestep.checkpoints import Verdict, inspect_path
from samestep.checkpoints.wording import Tone, describe, to_plain, verdict
from samestep.contract import Intent
from samestep.errors import ExitCode

_STYLES: dict[Tone, dict[str, str | bool]] = {
    "good": {"fg": "green"},
    "doubtful": {"fg": "yellow"},
    "bad": {"fg": "red"},
    "title": {"bold": True},
}


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--for",
    "intent",
    type=click.Choice([str(intent) for intent in Intent]),
    default=str(Intent.RESUME),
    show_default=True,
    help="What it is wanted for; decides the exit status.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_context
def inspect(context: click.Context, path: Path, *, intent: str, as_json: bool) -> None:
    """Tell what the checkpoint at PATH, or the one a restart would take below it, can be used for.

    Only headers are read, and nothing is unpickled. Exit status: 0 if the answer is "yes" or "yes, but", 1 if
    it is "no", 2 if there is no checkpoint.
    """
    wanted = Intent(intent)
    found = inspect_path(path)
    if as_json:
        click.echo(json.dumps(to_plain(found, wanted, __version__), indent=2))
    else:
        for line in describe(found):
            click.echo(click.style(line.text, **_STYLES.get(line.tone, {})))  # type: ignore[arg-type]
    context.exit(ExitCode.DEFECT if verdict(found, wanted) is Verdict.NO else ExitCode.HOLDS)
