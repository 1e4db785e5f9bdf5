"""``samestep drill``: prove that a restarted run is the same run."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samestep import __version__
from samestep.cli.commands import new_run_id, prepare_run_folder, project_root, split_words
from samestep.config import load_settings
from samestep.contract import Family

if TYPE_CHECKING:
    from samestep.config import Settings
    from samestep.drill.options import DrillOptions

EPILOG = """\b
Examples:
  samestep drill -- python train.py --out {out}
  samestep drill --resume-with '--resume {checkpoint}' -- python train.py --out {out}
  samestep drill --durable outputs --steps 40 -- python train.py
  samestep drill -- torchrun --nproc-per-node 2 train.py --out {out}
"""


@click.command(epilog=EPILOG, context_settings={"ignore_unknown_options": False})
@click.option("--resume-with", metavar="COMMAND|ARGS", help="How to restart: a command, or arguments to add.")
@click.option("--durable", metavar="PATH", help="Folder of the project that the script writes to by itself.")
@click.option("--steps", type=int, metavar="N", help="End the script after N optimizer steps.")
@click.option("--verify-steps", type=int, metavar="N", help="Steps to compare after a restart.")
@click.option("--grace", "grace_seconds", type=float, metavar="SECONDS", help="From a notice to the kill.")
@click.option("--also", multiple=True, metavar="ARGS", help="Also restart with these arguments (transfer).")
@click.option(
    "--only", multiple=True, metavar="FAMILY", help="cut, notice, damage, crash, transfer, restart."
)
@click.option(
    "--models", multiple=True, metavar="MODEL", help="Persistence models (crash): kill, power-ext4, ..."
)
@click.option("--max-states", type=int, metavar="N", help="Most disk states of interrupted saves (crash).")
@click.option("--storage", metavar="TYPE", help="File system of the checkpoints: ext4, xfs, nfs, tmpfs.")
@click.option("--replay", metavar="NAME", help="Run only the scenario of that name.")
@click.option(
    "--input", "inputs", multiple=True, metavar="PATH", help="Read-only input shared by all machines."
)
@click.option("--jobs", type=int, metavar="N", help="Attempts at a time.")
@click.option("--timeout", "timeout_seconds", type=float, metavar="SECONDS", help="Longest attempt.")
@click.option("--allow-network/--no-network", default=None, help="Leave trackers and hubs reachable.")
@click.option("--fresh/--no-fresh", default=None, help="Fork no restart from a preloaded process.")
@click.option("--strict/--no-strict", default=None, help="Notes count like defects.")
@click.option("--silence", multiple=True, metavar="SLUG", help="A finding that is intended here.")
@click.option("--work-dir", metavar="PATH", help="Where machines are built.")
@click.option(
    "--continue", "continued", is_flag=True, help="Go on with the latest drill, which was interrupted."
)
@click.option("--json", "as_json", is_flag=True, help="Print drill.json instead of text.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def drill(
    context: click.Context,
    /,
    command: tuple[str, ...],
    replay: str | None,
    as_json: bool,
    continued: bool,
    **flags: Any,
) -> int:
    """Run COMMAND as control, restart it from every disk state an interruption can leave, and compare step by step.

    COMMAND says where it writes with {out}; that folder is all a restart gets.
    """
    from samestep.cli.progress import Progress
    from samestep.drill.continuing import load_interrupted
    from samestep.drill.runner import Drill
    from samestep.report.files import encode_result, write_reports

    folder = Path.cwd()
    flags = {
        name: split_words(value) if name in {"only", "models"} else value for name, value in flags.items()
    }
    options = drill_options(
        list(command), load_settings(flags, folder, os.environ), folder, _whole_name(replay or "")
    )
    if continued:
        options = replace(options, earlier=load_interrupted(_latest(options.run_folder), options.command))
    prepare_run_folder(options.run_folder)
    colour = sys.stdout.isatty() if context.color is None else context.color
    progress = Progress(quiet=as_json, colour=colour)
    with progress:
        result = Drill(options, progress, __version__).run()
    write_reports(result, options.run_folder)
    point_latest(options.run_folder)
    if as_json:
        click.echo(encode_result(result), nl=False)
    else:
        report = _latest(options.run_folder) / "report.html"
        progress.conclude(result, os.path.relpath(report, folder))
    return result.exit_code


def drill_options(command: list[str], settings: Settings, folder: Path, replay: str) -> DrillOptions:
    """Turn settings into the options of a drill that was started in ``folder``."""
    from samestep.drill.options import DEFAULT_MODELS, DrillOptions

    project = project_root(folder)
    return DrillOptions(
        command=command,
        project=project,
        working_folder=os.path.relpath(folder, project),
        run_folder=project / ".samestep" / "runs" / new_run_id(),
        durable=settings.durable,
        resume_with=shlex.split(settings.resume_with),
        also=[shlex.split(words) for words in settings.also],
        steps=settings.steps,
        verify_steps=settings.verify_steps,
        grace_seconds=settings.grace_seconds,
        jobs=settings.jobs,
        timeout_seconds=settings.timeout_seconds,
        inputs=[Path(path).expanduser() for path in settings.inputs],
        allow_network=settings.allow_network,
        fresh=settings.fresh,
        strict=settings.strict,
        silence=frozenset(settings.silence),
        env=settings.env,
        project_files=settings.project_files,
        only=frozenset(Family(word) for word in settings.only),
        models=settings.models or list(DEFAULT_MODELS),
        max_states=settings.max_states,
        storage=settings.storage,
        replay=replay,
        work_dir=Path(settings.work_dir).expanduser() if settings.work_dir else None,
        origins=settings.origins,
    )


def point_latest(folder: Path) -> None:
    """Make ``.samestep/latest`` lead to ``folder``."""
    link = _latest(folder)
    fresh = link.with_name(f".latest.{os.getpid()}")
    fresh.symlink_to(os.path.relpath(folder, link.parent))
    fresh.replace(link)


def _whole_name(replay: str) -> str:
    """Return the name of a scenario; an interrupted save's may be given as ``samestep crash states`` lists it."""
    return f"{Family.CRASH}/{replay}" if replay.startswith(("save-", "recovery")) else replay


def _latest(run_folder: Path) -> Path:
    return run_folder.parents[1] / "latest"
