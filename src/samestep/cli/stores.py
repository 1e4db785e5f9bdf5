"""What the verbs of ``samestep bundle`` share: opening a store, choosing a bundle, showing results."""

from __future__ import annotations

import functools
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from samestep import __version__
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.errors import StoreError
    from samestep.bundle.storage.base import Storage
    from samestep.bundle.store import Store
    from samestep.report.tables import Table

ROOT = click.argument("root")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
BEGIN_AGAIN = click.option(
    "--begin-again",
    default="",
    metavar="REASON",
    help="Go on although no bundle that is there can be resumed from, and keep why.",
)
INTO = click.option(
    "--into",
    required=True,
    metavar="FOLDER",
    type=click.Path(),
    help="Where it goes; nothing there is replaced.",
)

_SELECTING = (
    click.option(
        "--intent",
        type=click.Choice(["resume", "new-run", "weights"]),
        default="resume",
        show_default=True,
        help="What it is wanted for.",
    ),
    click.option(
        "--policy",
        type=click.Choice(["fallback", "strict"]),
        default="fallback",
        show_default=True,
        help="strict: refuse to go past a newer bundle that cannot be used.",
    ),
    click.option(
        "--cut-step", type=click.IntRange(min=0), metavar="N", help="Last step before the interruption."
    ),
    click.option("--run", metavar="ID", help="The run that must be there."),
    click.option(
        "--expect", multiple=True, metavar="NAME=VERSION", help="What a bundle to resume must be made with."
    ),
    click.option("--ranks", type=click.IntRange(min=1), metavar="N", help="Ranks it must be made by."),
)


def selecting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a verb the options by which a bundle is selected; it gets them as ``wishes`` for ``Store.select``."""

    @functools.wraps(command)
    def with_wishes(
        *arguments: Any,
        intent: str,
        policy: str,
        cut_step: int | None,
        run: str | None,
        expect: tuple[str, ...],
        ranks: int | None,
        **options: Any,
    ) -> Any:
        from samestep.bundle.manifest import World
        from samestep.contract import Intent

        wishes = {
            "intent": Intent(intent),
            "policy": policy,
            "cut_step": cut_step,
            "run": run,
            "expected_environment": pairs(expect, "--expect"),
            "expected_world": World(size=ranks) if ranks else None,
        }
        return command(*arguments, wishes=wishes, **options)

    wrapped: Callable[..., Any] = with_wishes
    for option in reversed(_SELECTING):
        wrapped = option(wrapped)
    return wrapped


def open_place(root: str) -> Storage:
    """Return the place that ``root`` names: a path, or a URL such as ``s3://BUCKET/PREFIX``.

    Raises:
        UsageError, RequestError: it names no place that can keep a store.
    """
    from samestep.bundle.storage.local import LocalStorage
    from samestep.bundle.storage.opening import open_storage

    if root.lower().startswith("memory:"):
        raise UsageError(
            f"nothing would be left of {root} when this command ends", hint="name a folder or an object store"
        )
    place = open_storage(root)
    if isinstance(place, LocalStorage):
        _require_no_file(place.root)
    return place


def _require_nothing(place: Storage) -> None:
    """Refuse what is left of a run: that is a loss, and no first start."""
    from samestep.bundle.errors import FormatError

    rest = next((entry for prefix in ("chain/", "bundles/") for entry in place.entries(prefix)), None)
    if rest is not None:
        raise FormatError(
            f"{place.url} holds {rest.key} and no run.json: what is left of a run",
            hint="bring back what is missing, and begin no other run there",
        )


def _require_no_file(folder: Path) -> None:
    for above in (folder, *folder.parents):
        if above.exists() and not above.is_dir():
            below = "" if above == folder else f", so {folder} cannot be there"
            raise UsageError(f"{above} is a file and no folder{below}", hint="name a folder")


def require_target(into: str, place: Storage) -> Path:
    """Return the folder to bring something to, which may be missing.

    Raises:
        UsageError: it cannot be a folder, or lies inside the store itself.
    """
    from samestep.bundle.storage.local import LocalStorage

    folder = Path(into)
    _require_no_file(folder.absolute())
    if isinstance(place, LocalStorage) and folder.resolve().is_relative_to(place.root.resolve()):
        raise UsageError(
            f"{into} lies inside {place.root}, where the run's bundles are",
            hint="name a folder outside of it",
        )
    return folder


def open_store(root: str, *, writing: bool, run: str | None = None) -> Store:
    """Open the store at ``root``.

    Args:
        root: see `open_place`.
        writing: see ``Store.open``.
        run: the run that must be there.

    Raises:
        StoreMissing: there is none, and nothing else of a run.
        FormatError: there is something of a run, and not what identifies it.
        UsageError: there is none, and ``run`` was to be there.
    """
    from samestep.bundle.errors import StoreMissing
    from samestep.bundle.store import Store

    place = open_place(root)
    try:
        return Store.open(place, writing=writing)
    except StoreMissing as error:
        _require_nothing(place)
        if run is None:
            raise _missing(place, error) from error
        raise UsageError(
            f"{error.message}, and {run} was asked for", hint="give the root of the run that you mean"
        ) from error


def _missing(place: Storage, error: StoreError) -> StoreError:
    from samestep.bundle.errors import StoreMissing
    from samestep.bundle.storage.local import LocalStorage

    gone = isinstance(place, LocalStorage) and not place.root.exists()
    hint = "give the root of a run: the folder or URL that samestep bundle seal --run was given"
    return StoreMissing(f"{place.url} does not exist" if gone else error.message, hint=hint)


def selected(store: Store, name: str | None, intent: str = "resume") -> Bundle:
    """Return the bundle of that name, or else the one that would be selected.

    Raises:
        NothingToResume, AllDamaged: there is none to select.
        StoreError: there is none of that name.
    """
    from samestep.contract import Intent

    if name is not None:
        return store.bundle(name)
    return store.chosen(store.select(intent=Intent(intent)))


def pairs(words: Sequence[str], option: str) -> dict[str, str]:
    """Take ``NAME=TEXT`` apart.

    Raises:
        UsageError: there is no ``=``, no text, or a name twice.
    """
    found: dict[str, str] = {}
    for word in words:
        name, _, text = word.partition("=")
        if not name.strip() or not text.strip():
            raise UsageError(f"{option} {word} says nothing of anything", hint=f"write {option} NAME=TEXT")
        if name.strip() in found:
            raise UsageError(f"{option} names {name.strip()} twice")
        found[name.strip()] = text.strip()
    return found


def print_json(kind: str, *, one_line: bool = False, **values: Any) -> None:
    """Print one object that names its schema and the version of samestep."""
    plain = {"schema": f"samestep.{kind}/1", "version": __version__, **values}
    click.echo(json.dumps(plain, indent=None if one_line else 1, ensure_ascii=False))


def print_table(table: Table, title: str = "") -> None:
    """Print a table: drawn on a terminal, aligned by blanks elsewhere."""
    if not sys.stdout.isatty():
        click.echo(f"{title}\n" if title else "", nl=False)
        click.echo(table.text(), nl=False)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as Drawn
    from rich.text import Text

    drawn = Drawn(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    for column, name in enumerate(table.head):
        drawn.add_column(name, justify="right" if column in table.numbers else "left", overflow="fold")
    for row in table.rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)
