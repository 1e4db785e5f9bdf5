"""The verbs of ``samestep bundle`` that bring bundles elsewhere: restore, copy, export."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

import click
import msgspec

from samestep.cli.journals import RestoreNotes
from samestep.cli.stores import (
    BEGIN_AGAIN,
    INTO,
    JSON,
    ROOT,
    open_place,
    open_store,
    print_json,
    require_target,
    selected,
    selecting,
)
from samestep.contract import Intent
from samestep.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.decisions import Decision
    from samestep.bundle.store import Store

_WHICH = click.option(
    "--bundle", "name", metavar="BUNDLE", help="That one, instead of the one selection takes."
)


@click.command(short_help="Put a bundle back where its framework looks.")
@ROOT
@INTO
@_WHICH
@click.option("--abandoned", is_flag=True, help="Take --bundle although the run went on without it.")
@selecting
@click.option("--new-run", "new_root", metavar="ROOT", help="Root of the new run (with --intent new-run).")
@click.option("--reason", default="", metavar="TEXT", help="Why there is a new run; it stays with it.")
@JSON
def restore(
    root: str,
    *,
    into: str,
    name: str | None,
    abandoned: bool,
    wishes: dict[str, Any],
    new_root: str | None,
    reason: str,
    as_json: bool,
) -> ExitCode:
    """Put a bundle back below FOLDER under the name its framework expects, whole or not at all.

    Every byte is verified while it is read; a bundle found damaged is set aside and the next older one is taken.
    What was decided, in the same way as by select, is printed before anything is written. --intent weights brings
    the files with the weights only; --intent new-run also makes the root of another run, which keeps where it comes
    from and why. Exit status: as of select.
    """
    from samestep.bundle.copying import begin_new_run

    intent = wishes["intent"]
    if (intent == Intent.NEW_RUN) != bool(new_root):
        raise UsageError(
            "--intent new-run and --new-run ROOT go together", hint="a new run gets a root of its own"
        )
    if new_root and not reason.strip():
        raise UsageError("a new run needs a reason", hint="say it with --reason: it stays with the run")
    if new_root:
        _require_no_run(new_root)
    if name is not None and not name.strip():
        raise UsageError("--bundle names nothing", hint='say an id, the beginning of one, or "latest"')
    if abandoned and name is None:
        raise UsageError("--abandoned is about a bundle that is named", hint="name it with --bundle")
    if name is not None and (wishes["expected_environment"] or wishes["expected_world"]):
        raise UsageError(
            "--bundle names one, and --expect and --ranks choose among them",
            hint="leave out one or the other",
        )
    store = open_store(root, writing=True, run=wishes["run"])
    target = require_target(into, store.storage)
    with contextlib.closing(RestoreNotes()) as notes:
        named = _named(store, name, wishes, notes, abandoned=abandoned, as_json=as_json) if name else None
        decision, found, place = _put_back(store, target, named, wishes, notes, as_json=as_json)
    _say_notes(store)
    new = begin_new_run(store, found, open_place(new_root), reason) if new_root else None
    _say_restored(decision, found, place, new, target, journal=notes.path, as_json=as_json)
    if intent != Intent.RESUME and not as_json:
        _say_beside(found)
    return ExitCode.HOLDS


@click.command(short_help="Copy a bundle to another root.")
@ROOT
@click.argument("target")
@_WHICH
@BEGIN_AGAIN
@JSON
def copy(root: str, target: str, name: str | None, *, begin_again: str, as_json: bool) -> None:
    """Copy a bundle of the run at ROOT to the root TARGET, every byte verified on the way.

    Where TARGET holds no run, one is made that keeps where it comes from. In a run that is there, a new attempt
    takes over with the copy: whoever trains there may not commit any more.
    """
    from samestep.bundle.copying import copy as carry
    from samestep.cli.transfer import Transfer

    place = open_place(target)
    store = open_store(root, writing=True)
    found = selected(store, name)
    with Transfer("copying", found.manifest.size) as transfer:
        made = carry(store, found, place, report=transfer.report, begin_again=begin_again)
    if as_json:
        print_json("copied", run=store.run.id, bundle=found.id, step=found.step, target=target, copy=made.id)
    else:
        click.echo(f"{found.id}  step {found.step}  copied to {target} as {made.id}")


@click.command(short_help="Write the weights for other programs.")
@ROOT
@INTO
@_WHICH
@click.option(
    "--format",
    "layout",
    type=click.Choice(["hf", "dcp", "safetensors"]),
    default="hf",
    show_default=True,
    help="What is written.",
)
@JSON
def export(root: str, into: str, name: str | None, *, layout: str, as_json: bool) -> None:
    """Write the weights of a bundle to FOLDER for other programs, every byte verified on the way.

    "hf" brings the files with configuration and tokenizer as from_pretrained opens them. "safetensors" makes one
    file, model.safetensors, shards joined and tied weights once. "dcp" makes a folder for
    torch.distributed.checkpoint.load; of a bundle that samestep.Run saved it holds averaged weights and optimizers,
    too. Weights that several ranks saved in pieces are joined; that, "safetensors" and "dcp" need torch.
    """
    from samestep.cli.transfer import Transfer, counted

    store = open_store(root, writing=True)
    target = require_target(into, store.storage)
    found = selected(store, name, str(Intent.WEIGHTS))
    bring = _exporter(found, layout)
    with Transfer("exporting") as transfer:
        store.storage = counted(store.storage, transfer.report)
        place = bring(store, found, target)
    _say_notes(store)
    if as_json:
        print_json(
            "exported", run=store.run.id, bundle=found.id, step=found.step, path=str(place), format=layout
        )
        return
    click.echo(f"{found.id}  step {found.step}  {'checkpoint' if layout == 'dcp' else 'weights'} in {place}")
    if layout == "hf":
        _say_beside(found)


def _require_no_run(root: str) -> None:
    from samestep.bundle.errors import StoreMissing

    try:
        there = open_store(root, writing=False)
    except StoreMissing:
        return
    raise UsageError(f"{root} already holds {there.run.id}", hint="give the new run a root of its own")


def _named(
    store: Store, name: str, wishes: dict[str, Any], notes: RestoreNotes, *, abandoned: bool, as_json: bool
) -> Bundle:
    """Return the bundle of that name, after saying what selection thinks of it.

    Raises:
        StoreError: there is none, or the run went on without it and is to resume from it all the same.
    """
    from samestep.bundle.errors import RequestError
    from samestep.bundle.placing import passed_over

    found = store.bundle(name)
    decision = store.select(**wishes | {"policy": "fallback"})
    notes.decided(decision, named=found.id)
    against = passed_over(store, found, decision)
    if against and not abandoned and wishes["intent"] is Intent.RESUME:
        raise RequestError(
            f"{found.id} of step {found.step} is not what {store.run.id} goes on from: {against}",
            hint="leave --bundle out, or say --abandoned to go back to it all the same",
        )
    click.echo(f"{found.id}, step {found.step}, is taken because it was named", err=as_json)
    if decision.bundle != found.id:
        instead = f"{decision.bundle}, step {decision.step}" if decision.bundle else "none"
        click.echo(f"  selection   {instead}", err=as_json)
    if against:
        click.echo(f"  beware      {against}", err=as_json)
    return found


def _put_back(
    store: Store,
    into: Path,
    named: Bundle | None,
    wishes: dict[str, Any],
    notes: RestoreNotes,
    *,
    as_json: bool,
) -> tuple[Decision | None, Bundle, Path]:
    from samestep.bundle.placing import put_back_selected
    from samestep.cli.transfer import Transfer, counted

    with Transfer("restoring") as transfer:
        store.storage = counted(store.storage, transfer.report)

        def place(store: Store, bundle: Bundle, into: Path) -> Path:
            transfer.expect(bundle.manifest.size)
            with notes.restoring(bundle):
                return _placed(store, bundle, into, wishes["intent"])

        if named is not None:
            return None, named, place(store, named, into)

        def show(decision: Decision) -> None:
            notes.decided(decision)
            if decision.outcome == "resume":
                click.echo(decision.text(), err=as_json)

        decision, path = put_back_selected(store, into, show=show, place=place, **wishes)
        return decision, store.chosen(decision), path


def _placed(store: Store, bundle: Bundle, into: Path, intent: Intent) -> Path:
    """Put there what the intent asks for: all of it to resume, else the weights."""
    from samestep.bundle.copying import sharded_weights
    from samestep.bundle.placing import put_back

    if intent is Intent.RESUME and bundle.manifest.open_rows:
        raise UsageError(
            f"{bundle.id} leaves open what becomes of {', '.join(bundle.manifest.open_rows)}: no run resumes from it",
            hint="--intent weights brings its weights",
        )
    if intent is Intent.RESUME or (intent is Intent.NEW_RUN and sharded_weights(bundle.manifest)):
        return put_back(store, bundle, into)
    return _exporter(bundle)(store, bundle, into)


def _exporter(bundle: Bundle, layout: str = "hf") -> Callable[[Store, Bundle, Path], Path]:
    """Return what writes the weights of a bundle in a layout.

    Raises:
        UsageError: it needs torch, and there is none.
    """
    from samestep.bundle.copying import export as bring
    from samestep.bundle.copying import in_pieces

    if layout == "hf" and not in_pieces(bundle.manifest):
        return bring
    try:
        from samestep.state import exporting
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        what = f"export --format {layout}" if layout != "hf" else "joining the pieces of several ranks"
        raise UsageError(
            f"{what} needs torch, which is not installed here", hint='pip install "samestep[train]"'
        ) from None
    if layout == "dcp":
        return exporting.export_dcp
    return functools.partial(exporting.export_file, configured=layout == "hf")


def _say_notes(store: Store) -> None:
    for note in store.notes:
        click.echo(f"beware: {note}", err=True)


def _say_beside(found: Bundle) -> None:
    from samestep.bundle.copying import beside_weights

    beside = beside_weights(found.manifest)
    if beside:
        click.echo(f"beware: the same files hold {', '.join(beside)}, too: load the weights only", err=True)


def _say_restored(
    decision: Decision | None,
    found: Bundle,
    place: Path,
    new: Store | None,
    into: Path,
    *,
    journal: Path | None,
    as_json: bool,
) -> None:
    from samestep.bundle.placing import other_pick

    other = other_pick(place, into)
    if as_json:
        print_json(
            "restored",
            decision=msgspec.to_builtins(decision),
            bundle=found.id,
            step=found.step,
            path=str(place),
            framework_would_take=other or None,
            new_run=new.run.id if new else None,
            journal=str(journal) if journal else None,
        )
        return
    click.echo(f"{found.id}  step {found.step}  is in {place}")
    if new is not None:
        click.echo(f"{new.run.id} begins at {new.storage.url}")
    if other:
        click.echo(
            f"beware: asked only to resume, the framework would take {other} there, not this one", err=True
        )
