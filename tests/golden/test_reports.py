"""The forms of a report, as a whole."""

import re

import pytest

from report_samples import SAMPLES
from samestep.report import encode_result, render_terminal
from samestep.report.github import render_annotations
from samestep.report.html import render_html
from samestep.report.junit import render_junit
from samestep.report.markdown import render_markdown

KINDS = ["defect", "holding", "noisy", "empty", "interrupted"]


@pytest.mark.parametrize("kind", KINDS)
def test_terminal(golden, kind):
    golden(f"{kind}.txt", render_terminal(SAMPLES[kind](), width=100))


def test_terminal_in_colour(golden):
    golden("defect.ansi", render_terminal(SAMPLES["defect"](), width=100, colour=True))


@pytest.mark.parametrize("kind", KINDS)
def test_junit(golden, kind):
    golden(f"{kind}.xml", render_junit(SAMPLES[kind]()))


@pytest.mark.parametrize("kind", KINDS)
def test_markdown(golden, kind):
    golden(f"{kind}.md", render_markdown(SAMPLES[kind]()))


@pytest.mark.parametrize("kind", KINDS)
def test_github_annotations(golden, kind):
    golden(f"{kind}.annotations", render_annotations(SAMPLES[kind]()))


@pytest.mark.parametrize("kind", KINDS)
def test_json(golden, kind):
    golden(f"{kind}.json", encode_result(SAMPLES[kind]()).decode())


@pytest.mark.parametrize("kind", KINDS)
def test_page_without_what_comes_from_packages(golden, kind):
    """The prose and tables of the page; charts, their script and the style are looked at in a browser."""
    page = render_html(SAMPLES[kind]())
    page = re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)
    page = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    page = re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    page = re.sub(r"sha256-[\w+/=]+", "sha256-…", page)
    golden(f"{kind}.html", page)
