"""``samestep bundle seal``: finished checkpoints become bundles, one of them or each new one."""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from samestep.cli.journals import attempt_journal
from samestep.cli.stores import BEGIN_AGAIN, JSON, open_place, pairs, print_json
from samestep.errors import SamestepError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from samestep.bundle.attempts import Attempt
    from samestep.bundle.bundles import Bundle
    from samestep.bundle.carrying import Carrier
    from samestep.bundle.decisions import Decision
    from samestep.bundle.sealing import Statements
    from samestep.bundle.store import Store
    from samestep.bundle.watching import Seen

_LOOK_SECONDS = 1.0


@click.command(short_help="Turn a finished checkpoint into a bundle.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--run", "root", required=True, metavar="ROOT", help="The run's root; made if it is not there.")
@click.option(
    "--step", type=click.IntRange(min=0), metavar="N", help="Completed steps, where no file says so."
)
@click.option("--rebuilt", multiple=True, metavar="NAME=HOW", help="A component that a restart makes anew.")
@click.option("--irrelevant", multiple=True, metavar="NAME=REASON", help="A component that does not matter.")
@click.option("--allow-open", is_flag=True, help="Seal with open rows: usable for its weights only.")
@click.option("--data-version", default="", metavar="TEXT", help="Version of the data set.")
@click.option("--code", multiple=True, metavar="NAME=TEXT",
              help="What identifies the code; by default the commit checked out here.")  # fmt: skip
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="Keep this file's digest.")
@click.option("--watch", is_flag=True, help="Seal every new checkpoint below FOLDER, until interrupted.")
@click.option("--settle", type=click.FloatRange(min=0), default=2.0, show_default=True, metavar="SECONDS",
              help="How long a watched checkpoint has to rest.")  # fmt: skip
@BEGIN_AGAIN
@JSON
def seal(
    folder: Path,
    *,
    root: str,
    step: int | None,
    rebuilt: tuple[str, ...],
    irrelevant: tuple[str, ...],
    data_version: str,
    code: tuple[str, ...],
    config: Path | None,
    settle: float,
    begin_again: str,
    allow_open: bool,
    watch: bool,
    as_json: bool,
) -> None:
    """Turn the finished checkpoint at FOLDER into a bundle of the run.

    FOLDER is a checkpoint of any framework, or a file. Unchanged files are stored once. A checkpoint that is not
    whole or changes meanwhile is refused, and so is one that leaves open what becomes of a component. A run whose
    bundles are damaged is not gone on with unless --begin-again says why.
    """
    from samestep.bundle.manifest import Data
    from samestep.bundle.sealing import Statements
    from samestep.process.revision import code_version

    statements = Statements(
        irrelevant=pairs(irrelevant, "--irrelevant"),
        rebuilt=pairs(rebuilt, "--rebuilt"),
        data=Data(version=data_version),
        code=pairs(code, "--code") or code_version(Path.cwd()),
        config_digest=_digest_of(config),
        allow_open=allow_open,
    )
    if watch:
        if step is not None:
            raise UsageError("--step says one step, and --watch takes many checkpoints", hint="leave one out")
        _watch(folder, root, statements, settle, begin_again, as_json=as_json)
        return
    _seal_one(folder, root, statements, step, begin_again, as_json=as_json)


def _seal_one(
    folder: Path, root: str, statements: Statements, step: int | None, begin_again: str, *, as_json: bool
) -> None:
    from samestep.bundle.folders import look_at
    from samestep.bundle.sealing import checked_contract
    from samestep.bundle.sealing import seal as make
    from samestep.cli.transfer import Transfer

    checkpoint = look_at(folder, step)
    checked_contract(checkpoint, statements)  # before an attempt is registered, which fences every older one
    store, decision, attempt = _sealing_attempt(root, begin_again, checkpoint.step)
    size = sum(state.size for state in checkpoint.files.values())
    with _carried(store, decision, attempt) as carrier, Transfer("sealing", size) as transfer:
        made = make(attempt, checkpoint, statements, report=transfer.report, carrier=carrier)
    _say_sealed(store, made, str(folder), as_json=as_json)


@contextlib.contextmanager
def _carried(store: Store, decision: Decision, attempt: Attempt) -> Iterator[Carrier | None]:
    """Keep the journal of an attempt, which its commits carry into the store; that it lacks something is said."""
    from samestep.bundle.carrying import Carrier

    try:
        journal = attempt_journal(decision, attempt)
    except (SamestepError, OSError) as error:
        click.echo(f"beware: there is no journal of {attempt.id}: {error}", err=True)
        yield None
        return
    with journal:
        carrier = Carrier(journal, store.storage, attempt.id)
        try:
            yield carrier
        finally:
            if carrier.problem:
                click.echo(f"beware: the journal is not complete: {carrier.problem}", err=True)


def _watch(
    folder: Path, root: str, statements: Statements, settle: float, begin_again: str, *, as_json: bool
) -> None:
    """Seal until interrupted; what is finished by then is sealed before the verb ends."""
    from samestep.bundle.watching import Watcher

    store, decision, attempt = _sealing_attempt(root, begin_again)

    def tell(seen: Seen) -> None:
        if seen.bundle is not None:
            _say_sealed(store, seen.bundle, seen.path, as_json=as_json, one_line=True)
        elif seen.problem is not None:
            click.echo(f"{seen.path} is not sealed: {seen.problem.message}", err=True)

    with _carried(store, decision, attempt) as carrier:
        watcher = Watcher(
            folder, attempt, statements, already=store.bundles(), settle_seconds=settle, carrier=carrier
        )
        try:
            journal = f"; journal {carrier.path}" if carrier else ""
            click.echo(f"watching {folder}{journal}", err=True)
            watcher.watch(tell, interval=min(_LOOK_SECONDS, max(settle / 2, 0.1)))
        except KeyboardInterrupt:
            for seen in watcher.finish():
                tell(seen)
            if carrier:
                step = attempt.newest.bundle.step if attempt.newest else None
                carrier.note("ended", outcome="interrupted", step=step)
                carrier.carry()
            raise


def _sealing_attempt(root: str, begin_again: str, step: int | None = None) -> tuple[Store, Decision, Attempt]:
    """Open the run, or make it, and register an attempt that goes on from what selection takes."""
    from samestep.bundle.continuing import continue_run
    from samestep.bundle.errors import StoreMissing
    from samestep.bundle.store import Store

    place = open_place(root)
    try:
        store = Store.open(place, writing=True)
    except StoreMissing:
        store = Store.create(place)
        click.echo(f"made the root of {store.run.id} at {place.url}", err=True)
    reason = "seals checkpoints of a framework"
    return store, *continue_run(store, reason, step=step, begin_again=begin_again)


def _say_sealed(store: Store, made: Bundle, source: str, *, as_json: bool, one_line: bool = False) -> None:
    from samestep.contract.sizes import readable_bytes
    from samestep.report.bundles import plain_bundle

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
