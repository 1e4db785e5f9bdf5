"""``samestep explain``: the page of a finding, or the list of all."""

from __future__ import annotations

import sys
from pathlib import Path

import click

import samestep
from samestep.config import suggestion
from samestep.contract import FINDINGS
from samestep.errors import UsageError

PACKAGED_PAGES = Path(samestep.__file__).parent / "contract" / "pages"
REPOSITORY_PAGES = Path(samestep.__file__).parents[2] / "docs" / "findings"


@click.command()
@click.argument("slug", required=False)
def explain(slug: str | None) -> None:
    """Explain the finding SLUG: what it means, why it hurts, its causes, the fix. Without SLUG: list all."""
    if slug is None:
        _list_findings()
    elif slug in FINDINGS:
        _show(finding_page(slug).read_text(encoding="utf-8"))
    else:
        hint = suggestion(slug, FINDINGS) or "samestep explain lists all findings"
        raise UsageError(f"there is no finding {slug!r}", hint=hint)


def finding_page(slug: str) -> Path:
    """Return the page of ``slug``: from the wheel, or from the repository in an editable install.

    Raises:
        UsageError: this installation holds no pages.
    """
    for folder in (PACKAGED_PAGES, REPOSITORY_PAGES):
        page = folder / f"{slug}.md"
        if page.is_file():
            return page
    raise UsageError(f"the page {slug}.md is missing from this installation", hint="install samestep again")


def _list_findings() -> None:
    width = max(map(len, FINDINGS))
    for kind in FINDINGS.values():
        click.echo(f"{kind.slug:{width}}  {kind.severity!s:11}  {kind.title}")


def _show(page: str) -> None:
    """Print Markdown as it is to a pipe, and set it for a terminal."""
    if not sys.stdout.isatty():
        click.echo(page, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(width=min(100, Console().width)).print(Markdown(page))
