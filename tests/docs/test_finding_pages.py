"""Every finding has a page, all pages have one shape, and no page is left over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from samestep.contract import FINDINGS, Severity

PAGES = Path(__file__).parents[2] / "docs" / "findings"
SECTIONS = [
    "What it means",
    "Why it hurts",
    "How samestep saw it",
    "Usual causes",
    "The fix",
    "When it is intended",
]


def page(slug):
    return (PAGES / f"{slug}.md").read_text(encoding="utf-8")


def sections(text):
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], (body.strip() for body in parts[2::2]), strict=True))


def test_pages_and_findings_are_the_same_set():
    assert {path.stem for path in PAGES.glob("*.md")} == set(FINDINGS)


@pytest.mark.parametrize("slug", FINDINGS)
def test_page_has_the_fixed_shape(slug):
    found = sections(page(slug))
    assert list(found) == SECTIONS
    assert all(found.values())


@pytest.mark.parametrize("slug", FINDINGS)
def test_page_agrees_with_the_findings_table(slug):
    text, kind = page(slug), FINDINGS[slug]
    assert text.startswith(f"# {slug}\n")
    assert kind.title.lower() in text.lower()
    assert f"Severity: {kind.severity}." in text
    assert all(f"`{component}`" in text for component in kind.components)


@pytest.mark.parametrize("slug", FINDINGS)
def test_causes_are_ranked_and_more_than_one(slug):
    causes = sections(page(slug))["Usual causes"].splitlines()
    assert len(causes) > 1
    assert [line.split(".")[0] for line in causes] == [str(n) for n in range(1, len(causes) + 1)]


@pytest.mark.parametrize(
    "slug", [s for s, kind in FINDINGS.items() if kind.severity is not Severity.MEASUREMENT]
)
def test_page_says_how_to_silence_it(slug):
    assert f'silence = ["{slug}"]' in sections(page(slug))["When it is intended"]
