"""``samestep bundle``: look at a run's bundles, choose one, keep or give up others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from samestep.cli.bundle_moves import copy, export, restore
from samestep.cli.bundle_seal import seal
from samestep.cli.stores import JSON, ROOT, open_store, print_json, print_table, selected, selecting
from samestep.errors import ExitCode

if TYPE_CHECKING:
    from samestep.bundle.bundles import Bundle
    from samestep.bundle.chain import Unreadable
    from samestep.bundle.store import Store

_BUNDLE = click.argument("name", metavar="BUNDLE")
_PIN = click.option("--name", "pin_name", default="pin", show_default=True, help="Name of the pin.")
_ASKING = 16  # listings asked for at once
_OUTCOMES = {"resume": ExitCode.HOLDS, "empty": ExitCode.NOTHING_RAN}


@click.group()
def bundle() -> None:
    """Keep a run's recovery points: complete, verified, and chosen for a stated reason.

    ROOT is where the run's bundles are: a folder, s3://BUCKET/PREFIX, gs://... or az://... BUNDLE is an id, the
    beginning of one, or "latest".

    Exit status of every verb: 0 it is done and all is well, 1 something is damaged or cannot be used, 2 it cannot be
    done as asked, 4 the place failed or did not answer, 5 there is no run or no bundle at ROOT.
    """


@bundle.command(short_help="List the bundles of a run.")
@ROOT
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Show the N newest.")
@JSON
def ls(root: str, limit: int, *, as_json: bool) -> ExitCode:
    """List the bundles of the run at ROOT, newest first."""
    from samestep.bundle.holds import pins_on
    from samestep.bundle.verifying import in_parallel
    from samestep.report.bundles import bundles_table, plain_bundle, records_of

    store = open_store(root, writing=False)
    bundles, unreadable = records_of(store, limit)
    named = in_parallel(lambda one: (one.id, pins_on(store.storage, one.id)), bundles, _ASKING)
    pins = dict(named)
    if as_json:
        print_json(
            "bundles",
            run=store.run.id,
            root=store.storage.url,
            lineage=store.run.lineage,
            bundles=[plain_bundle(one, pins[one.id]) for one in bundles],
            unreadable=[{"number": one.number, "reason": one.reason, "text": one.text} for one in unreadable],
        )
    elif bundles:
        print_table(bundles_table(bundles, pins))
    else:
        click.echo(f"{store.run.id} holds no bundle")
    if not as_json:
        _say_unreadable(unreadable)
    return ExitCode.HOLDS if not unreadable else ExitCode.DEFECT


@bundle.command(short_help="Show what a bundle holds and rests on.")
@ROOT
@click.argument("name", metavar="[BUNDLE]", default="latest")
@JSON
def show(root: str, name: str, *, as_json: bool) -> None:
    """Show what BUNDLE holds, what becomes of every component, and what it rests on."""
    from samestep.bundle.holds import pins_on
    from samestep.report.bundles import contract_table, facts, parts_table, plain_manifest

    store = open_store(root, writing=False)
    found = store.bundle(name)
    pins = pins_on(store.storage, found.id)
    if as_json:
        print_json(
            "bundle-shown", run=store.run.id, number=found.number, pins=pins, manifest=plain_manifest(found)
        )
        return
    click.echo(found.id)
    for label, text in [*facts(store, found), ("pins", ", ".join(pins) or "none")]:
        click.echo(f"  {label:<12}{text}")
    print_table(contract_table(found.manifest.contract), "\nContract")
    print_table(parts_table(found), "\nParts")


@bundle.command(short_help="Compare what is stored with the manifests.")
@ROOT
@click.argument("names", metavar="[BUNDLE]...", nargs=-1)
@click.option(
    "--level",
    type=click.Choice(["manifest", "sizes", "full"]),
    default="full",
    show_default=True,
    help="How closely to look: full reads every byte.",
)
@JSON
def verify(root: str, names: tuple[str, ...], level: str, *, as_json: bool) -> ExitCode:
    """Compare what is stored with the manifests, of the bundles named or of all.

    Exit status: 0 if all of it is whole, 1 if anything is not, 5 if there is no bundle, 4 if the place failed.
    """
    from samestep.bundle.verifying import Level
    from samestep.cli.transfer import Transfer, counted
    from samestep.report.bundles import plain_verification, render_verification

    store = open_store(root, writing=False)
    bundles, unreadable = ([store.bundle(name) for name in names], []) if names else _all_records(store)
    size = sum(one.manifest.size for one in bundles) if level == Level.FULL else 0
    found = []
    with Transfer("verifying", size) as transfer:
        store.storage = counted(store.storage, transfer.report)
        for one in bundles:
            found.append(store.verify(one, Level(level)))
            if not as_json:
                click.echo(render_verification(found[-1], one.step), nl=False)
    if as_json:
        print_json(
            "verification",
            run=store.run.id,
            bundles=[plain_verification(one) for one in found],
            unreadable=[{"number": one.number, "reason": one.reason, "text": one.text} for one in unreadable],
        )
    else:
        _say_unreadable(unreadable)
    if unreadable or not all(one.holds for one in found):
        return ExitCode.DEFECT
    return _none(store, quiet=as_json) if not found else ExitCode.HOLDS


@bundle.command(short_help="Say from which bundle a run would go on.")
@ROOT
@selecting
@JSON
def select(root: str, *, wishes: dict[str, Any], as_json: bool) -> ExitCode:
    """Say from which bundle the run at ROOT would go on, and why not from a newer one. Nothing is changed.

    Exit status: 0 if there is one, 5 if the run has none yet or is not there at all, 1 if there are some and none
    can be used, 4 if the place did not answer, 2 if the command line is wrong.
    """
    decision = open_store(root, writing=False, run=wishes["run"]).select(**wishes)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(decision), indent=1).decode())
    else:
        click.echo(decision.text())
    return _OUTCOMES.get(decision.outcome, ExitCode.DEFECT)


@bundle.command(short_help="Keep a bundle, whatever prune is told.")
@ROOT
@_BUNDLE
@_PIN
@click.option("--because", default="", metavar="REASON", help="Why it is kept.")
@JSON
def pin(root: str, name: str, pin_name: str, because: str, *, as_json: bool) -> None:
    """Keep BUNDLE, whatever the retention policy says, until it is unpinned."""
    store = open_store(root, writing=True)
    found = selected(store, name)
    store.pin(found, name=pin_name, because=because)
    if as_json:
        print_json("pin", run=store.run.id, bundle=found.id, pin=pin_name, pinned=True)
    else:
        click.echo(f"{found.id}  step {found.step}  pinned ({pin_name})")


@bundle.command(short_help="Take a pin away.")
@ROOT
@_BUNDLE
@_PIN
@JSON
def unpin(root: str, name: str, pin_name: str, *, as_json: bool) -> None:
    """Take a pin of BUNDLE away; the next prune may give it up."""
    store = open_store(root, writing=True)
    found = selected(store, name)
    there = store.unpin(found, name=pin_name)
    if as_json:
        print_json("pin", run=store.run.id, bundle=found.id, pin=pin_name, pinned=False, was_pinned=there)
    else:
        said = f"no longer pinned ({pin_name})" if there else f"had no pin {pin_name}"
        click.echo(f"{found.id}  step {found.step}  {said}")


@bundle.command(short_help="Give up what the policy does not keep.")
@ROOT
@click.option(
    "--keep-last",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    metavar="N",
    help="Newest that stay.",
)
@click.option(
    "--keep-every", type=click.IntRange(min=1), metavar="STEPS", help="Also one every so many steps."
)
@click.option("--dry-run", is_flag=True, help="Only say what would happen.")
@JSON
def prune(root: str, keep_last: int, keep_every: int | None, *, dry_run: bool, as_json: bool) -> None:
    """Give up the bundles that the policy does not keep, and remove what nothing needs any more.

    Pinned bundles stay, and so does what a running restore reads. Before any is given up, one that stays is
    verified byte by byte.
    """
    from samestep.bundle.retention import Policy
    from samestep.report.bundles import plain_pruning, render_pruning

    store = open_store(root, writing=not dry_run)
    pruning = store.prune(Policy(keep_last=keep_last, keep_every=keep_every), dry_run=dry_run)
    if as_json:
        print_json("pruning", run=store.run.id, dry_run=dry_run, **plain_pruning(pruning))
    else:
        click.echo(render_pruning(pruning, dry_run=dry_run), nl=False)


def _all_records(store: Store) -> tuple[list[Bundle], list[Unreadable]]:
    """Return the living bundles, and every record of the chain that cannot be read, however old it is."""
    from samestep.report.bundles import records_of

    bundles, _ = records_of(store)
    return bundles, store.unreadable()


def _say_unreadable(unreadable: list[Unreadable]) -> None:
    for one in unreadable:
        click.echo(f"record {one.number} cannot be read: {one.reason}: {one.text}")


def _none(store: Store, *, quiet: bool) -> ExitCode:
    if not quiet:
        click.echo(f"{store.run.id} holds no bundle")
    return ExitCode.NOTHING_RAN


for _command in (seal, restore, copy, export):
    bundle.add_command(_command)
