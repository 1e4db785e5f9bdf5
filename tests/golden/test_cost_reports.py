"""The cost answer as a whole, on the example that needs no random number."""

import re

import pytest

from samestep.cost.answering import answer
from samestep.cost.example import NOTE, ten_hours
from samestep.report.cost import encode_cost, render_cost
from samestep.report.cost.html import render_cost_page


@pytest.fixture(scope="module")
def result():
    return answer(ten_hours(), notes=[NOTE], provenance={"samestep": "0.0.0", "files": []})


def test_terminal(golden, result):
    golden("cost-example.txt", render_cost(result, width=100, page="cost.html"))


def test_terminal_in_colour(golden, result):
    golden("cost-example.ansi", render_cost(result, width=100, colour=True))


def test_json(golden, result):
    """Numbers to nine digits: the last ones may differ from processor to processor."""
    text = re.sub(
        r"-?\d+\.\d{9,}(e-?\d+)?", lambda found: f"{float(found[0]):.9g}", encode_cost(result).decode()
    )
    golden("cost-example.json", text)


def test_page_without_what_comes_from_packages(golden, result):
    """The prose and tables of the page; charts, their script and the style are looked at in a browser."""
    page = render_cost_page(result)
    for tag in ("style", "script", "svg"):
        page = re.sub(rf"<{tag}.*?</{tag}>", "", page, flags=re.DOTALL)
    golden("cost-example.html", re.sub(r"sha256-[\w+/=]+", "sha256-…", page))
