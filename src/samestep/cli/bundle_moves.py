"""The verbs of ``samestep bundle`` that move bytes: seal, restore, copy, export."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from samestep.cli.stores import INTO, JSON, ROOT, open_place, open_store, pairs, print_json, selected
from samestep.contract import Intent
from samestep.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from samestep.bundle.attempts import Attempt
    from samestep.bundle.bundles import Bundle
    from samestep.bundle.decisions import Decision
    from samestep.bundle.sealing import Statements
    from samestep.bundle.store import Store
    from samestep.bundle.watching import Seen
    from samestep.journal import Journal

_WHICH = click.option(
    "--bundle", "name", metavar="BUNDLE", help="That one, instead of the one selection takes."
)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--run", "root", required=True, metavar="ROOT", help="The run's root; made if it is not there.")
@click.option(
    "--step", type=click.IntRange(min=0), metavar="N", help="Completed steps, where no file says so."
)
@click.option("--rebuilt", multiple=True, metavar="NAME=HOW", help="A component that a restart makes anew.")
@click.option("--irrelevant", multiple=True, metavar="NAME=REASON", help="A component that does not matter.")
@click.option("--allow-open", is_flag=True, help="Seal with open rows: usable for its weights only.")
@click.option("--data-version", default="", metavar="TEXT", help="Version of the data set.")
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Keep this file's digest.")
@click.option("--watch", is_flag=True, help="Seal every new checkpoint below FOLDER, until interrupted.")
@click.option("--settle", type=click.FloatRange(min=0), default=2.0, show_default=True, metavar="SECONDS",
              help="How long a watched checkpoint has to rest.")  # fmt: skip
@JSON
def seal(
    folder: Path,
    *,
    root: str,
    step: int | None,
    rebuilt: tuple[str, ...],
    irrelevant: tuple[str, ...],
    data_version: str,
    config: Path | None,
    settle: float,
    allow_open: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Turn the finished checkpoint at FOLDER into a bundle of the run.

    FOLDER is a checkpoint of any framework, or a file. Unchanged files are stored once. A checkpoint that is not
    whole or changes meanwhile is refused, and so is one that leaves open what becomes of a component.
    """
    from samestep.bundle.manifest import Data
    from samestep.bundle.sealing import Statements

    statements = Statements(
        irrelevant=pairs(irrelevant, "--irrelevant"),
        rebuilt=pairs(rebuilt, "--rebuilt"),
        data=Data(version=data_version),
        config_digest=_digest_of(config),
        allow_open=allow_open,
    )
    if watch:
        if step is not None:
            raise UsageError("--step says one step, and --watch takes many checkpoints", hint="leave one out")
        _watch(folder, root, statements, settle, as_json=as_json)
        return
    _seal_one(folder, root, statements, step, as_json=as_json)


@click.command()
@ROOT
@INTO
@_WHICH
@click.option(
    "--intent",
    type=click.Choice([str(intent) for intent in (Intent.RESUME, Intent.NEW_RUN, Intent.WEIGHTS)]),
    default="resume",
    show_default=True,
    help="What it is wanted for.",
)
@click.option(
    "--policy",
    type=click.Choice(["fallback", "strict"]),
    default="fallback",
    show_default=True,
    help="strict: refuse to go past a newer bundle that cannot be used.",
)
@click.option(
    "--cut-step", type=click.IntRange(min=0), metavar="N", help="Last step before the interruption."
)
@click.option("--new-run", "new_root", metavar="ROOT", help="Root of the new run (with --intent new-run).")
@click.option("--reason", default="", metavar="TEXT", help="Why there is a new run; it stays with it.")
@JSON
def restore(
    root: str,
    *,
    into: str,
    name: str | None,
    intent: str,
    policy: str,
    cut_step: int | None,
    new_root: str | None,
    reason: str,
    as_json: bool,
) -> ExitCode:
    """Put a bundle back below FOLDER under the name its framework expects, whole or not at all.

    Every byte is verified while it is read; a bundle found damaged is set aside and the next older one is taken.
    What was decided is printed before anything is written. --intent weights brings the weights only; --intent
    new-run also makes the root of another run, which keeps where it comes from and why.
    """
    from samestep.bundle.copying import begin_new_run

    if (intent == Intent.NEW_RUN) != bool(new_root):
        raise UsageError(
            "--intent new-run and --new-run ROOT go together", hint="a new run gets a root of its own"
        )
    if new_root and not reason.strip():
        raise UsageError("a new run needs a reason", hint="say it with --reason: it stays with the run")
    if new_root:
        _require_no_run(new_root)
    store = open_store(root, writing=True)
    wishes = {"intent": Intent(intent), "policy": policy, "cut_step": cut_step}
    decision, found, place = _put_back(store, Path(into), name, wishes, quiet=as_json)
    new = begin_new_run(store, found, open_place(new_root), reason) if new_root else None
    _say_restored(decision, found, place, new, Path(into), as_json=as_json)
    return ExitCode.HOLDS


@click.command()
@ROOT
@click.argument("target")
@_WHICH
@JSON
def copy(root: str, target: str, name: str | None, *, as_json: bool) -> None:
    """Copy a bundle of the run at ROOT to the root TARGET, every byte verified on the way.

    Where TARGET holds no run, one is made that keeps where it comes from. In a run that is there, a new attempt
    takes over with the copy: whoever trains there may not commit any more.
    """
    from samestep.bundle.copying import copy as carry
    from samestep.cli.transfer import Transfer

    store = open_store(root, writing=True)
    found = selected(store, name)
    with Transfer("copying", found.manifest.size) as transfer:
        made = carry(store, found, open_place(target), report=transfer.report)
    if as_json:
        print_json("copied", run=store.run.id, bundle=found.id, step=found.step, target=target, copy=made.id)
    else:
        click.echo(f"{found.id}  step {found.step}  copied to {target} as {made.id}")


@click.command()
@ROOT
@INTO
@_WHICH
@JSON
def export(root: str, into: str, name: str | None, *, as_json: bool) -> None:
    """Write the weights of a bundle as a plain folder that transformers and safetensors open as it is."""
    store = open_store(root, writing=True)
    found = selected(store, name, str(Intent.WEIGHTS))
    place = _exported(store, found, Path(into))
    if as_json:
        print_json("exported", run=store.run.id, bundle=found.id, step=found.step, path=str(place))
    else:
        click.echo(f"{found.id}  step {found.step}  weights in {place}")


def _seal_one(folder: Path, root: str, statements: Statements, step: int | None, *, as_json: bool) -> None:
    from samestep.bundle.folders import look_at
    from samestep.bundle.sealing import checked_contract
    from samestep.bundle.sealing import seal as make
    from samestep.cli.transfer import Transfer

    checkpoint = look_at(folder, step)
    checked_contract(checkpoint, statements)  # before an attempt is registered, which fences every older one
    store, attempt = _sealing_attempt(root)
    with Transfer("sealing", sum(state.size for state in checkpoint.files.values())) as transfer:
        made = make(attempt, checkpoint, statements, report=transfer.report)
    _say_sealed(store, made, str(folder), as_json=as_json)


def _watch(folder: Path, root: str, statements: Statements, settle: float, *, as_json: bool) -> None:
    """Seal until interrupted; what is finished by then is sealed before the verb ends."""
    from samestep.bundle.carrying import Carrier
    from samestep.bundle.watching import Watcher

    store, attempt = _sealing_attempt(root)

    def tell(seen: Seen) -> None:
        if seen.bundle is not None:
            _say_sealed(store, seen.bundle, seen.path, as_json=as_json, one_line=True)
        elif seen.problem is not None:
            click.echo(f"{seen.path} is not sealed: {seen.problem.message}", err=True)

    with _journal(store, attempt) as journal:
        carrier = Carrier(journal, store.storage, attempt.id)
        watcher = Watcher(
            folder, attempt, statements, already=store.bundles(), settle_seconds=settle, carrier=carrier
        )
        click.echo(f"watching {folder}; journal {journal.path}", err=True)
        try:
            watcher.watch(tell)
        except KeyboardInterrupt:
            for seen in watcher.look(at_once=True):
                tell(seen)
            carrier.note("ended", outcome="interrupted", step=attempt.newest and attempt.newest.bundle.step)
            carrier.carry()
            raise
        finally:
            if carrier.problem:
                click.echo(f"the journal is not complete: {carrier.problem}", err=True)


def _journal(store: Store, attempt: Attempt) -> Journal:
    """Begin the journal of an attempt beside the project."""
    from samestep.cli.commands import prepare_run_folder, project_root
    from samestep.journal import Journal

    folder = project_root(Path.cwd()) / ".samestep" / "journal" / attempt.id
    prepare_run_folder(folder)
    journal = Journal.open(folder, attempt.id)
    resumed = attempt.newest
    journal.append("attempt-started", run=store.run.id, ordinal=attempt.ordinal, number=attempt.number)
    journal.append(
        "decision",
        outcome="resume" if resumed else "empty",
        bundle=resumed and resumed.bundle.id,
        step=resumed and resumed.bundle.step,
    )
    return journal


def _sealing_attempt(root: str) -> tuple[Store, Attempt]:
    """Open the run, or make it, and register an attempt that goes on from what selection takes."""
    from samestep.bundle.errors import StoreMissing
    from samestep.bundle.store import Store

    place = open_place(root)
    try:
        store = Store.open(place, writing=True)
    except StoreMissing:
        store = Store.create(place)
        click.echo(f"made the root of {store.run.id} at {place.url}", err=True)
    decision = store.select()
    known = decision.outcome in ("resume", "empty")
    return store, store.register(decision if known else None, "seals checkpoints of a framework")


def _say_sealed(store: Store, made: Bundle, source: str, *, as_json: bool, one_line: bool = False) -> None:
    from samestep.report.bundles import plain_bundle, readable_bytes

    fresh = sum(part.size for part in made.manifest.parts if not part.share_depth)
    if as_json:
        plain = plain_bundle(made)
        print_json(
            "sealed", one_line=one_line, run=store.run.id, source=source, bundle=plain, new_bytes=fresh
        )
        return
    size = readable_bytes(made.manifest.size)
    click.echo(f"{made.id}  step {made.step}  {size}, {readable_bytes(fresh)} of it new  from {source}")


def _digest_of(config: Path | None) -> str:
    if config is None:
        return ""
    try:
        return f"sha256:{hashlib.sha256(config.read_bytes()).hexdigest()}"
    except OSError as error:
        raise UsageError(f"cannot read {config}: {error.strerror}") from error


def _require_no_run(root: str) -> None:
    from samestep.bundle.errors import StoreMissing

    try:
        there = open_store(root, writing=False)
    except StoreMissing:
        return
    raise UsageError(f"{root} already holds {there.run.id}", hint="give the new run a root of its own")


def _put_back(
    store: Store, into: Path, name: str | None, wishes: dict[str, Any], *, quiet: bool
) -> tuple[Decision | None, Bundle, Path]:
    from samestep.bundle.placing import put_back_selected
    from samestep.cli.transfer import Transfer, counted

    with Transfer("restoring") as transfer:
        store.storage = counted(store.storage, transfer.report)

        def place(store: Store, bundle: Bundle, into: Path) -> Path:
            transfer.expect(bundle.manifest.size)
            return _placed(store, bundle, into, wishes["intent"])

        if name is not None:
            found = store.bundle(name)
            return None, found, place(store, found, into)

        def show(decision: Decision) -> None:
            if not quiet and decision.outcome == "resume":
                click.echo(decision.text())

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
    return _exported(store, bundle, into)


def _exported(store: Store, bundle: Bundle, into: Path) -> Path:
    from samestep.bundle.copying import export as bring

    return bring(store, bundle, into)


def _say_restored(
    decision: Decision | None, found: Bundle, place: Path, new: Store | None, into: Path, *, as_json: bool
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
        )
        return
    click.echo(f"{found.id}  step {found.step}  is in {place}")
    if new is not None:
        click.echo(f"{new.run.id} begins at {new.storage.url}")
    if other:
        click.echo(
            f"beware: asked only to resume, the framework would take {other} there, not this one", err=True
        )
