"""What the verbs of ``samestep bundle`` share: opening a store, choosing a bundle, showing results."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from samestep import __version__
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.bundle.bundles import Bundle
    from samestep.bundle.storage.base import Storage
    from samestep.bundle.store import Store
    from samestep.report.bundles import Table

ROOT = click.argument("root")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
INTO = click.option(
    "--into",
    required=True,
    metavar="FOLDER",
    type=click.Path(),
    help="Where it goes; nothing there is replaced.",
)


def open_place(root: str) -> Storage:
    """Return the place that ``root`` names: a path, or a URL such as ``s3://BUCKET/PREFIX``."""
    from samestep.bundle.storage.opening import open_storage

    return open_storage(root)


def open_store(root: str, *, writing: bool) -> Store:
    """Open the store at ``root``.

    Raises:
        StoreMissing: there is none.
    """
    from samestep.bundle.store import Store

    return Store.open(open_place(root), writing=writing)


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
