"""The page of a cost answer as a reader's browser shows it: charts drawn, nothing complained about, nothing fetched."""

import json
import re

import pytest
from msgspec.structs import replace

from browsing import browse, fetched, needs_chromium
from cost_samples import HOUR, case, offer
from samestep.cost.answering import answer
from samestep.report.cost.html import render_cost_page

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def page():
    offers = [offer(storage_month=0.02), offer(instance="other", spot=1.5, on_demand=2.5)]
    return render_cost_page(answer(case(offers=offers, deadline_seconds=2.4 * HOUR, budget=3.0)))


@pytest.fixture(scope="module")
def loaded(page, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    document, log = browse(folder, page, f"--log-net-log={folder / 'net.json'}")
    return document, log, folder / "net.json"


def test_every_chart_is_drawn_by_its_script(loaded):
    document, log, _ = loaded
    charts = re.findall(r'<div class="chart[^"]*vega-embed[^>]*data-chart="(\w+)"', document)
    assert charts == ["offers", "waterfalls", "distributions", "interval", "tornado"]
    assert [line for line in log.splitlines() if "CONSOLE" in line] == []


def test_nothing_is_fetched(loaded):
    assert fetched(loaded[2]) == []


def test_the_download_holds_the_result(loaded):
    assert re.search(r'<a id="download" href="blob:', loaded[0])


def test_tables_and_drawings_are_there_without_scripts(page, tmp_path):
    bare = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    document, _ = browse(tmp_path, bare)
    assert document.count("<table") == 3
    assert len(re.findall('<svg [^>]*class="marks"', document)) == 5


def test_on_a_telephone_nothing_hangs_out_of_the_page_and_no_row_is_stretched(page, tmp_path):
    """Wide tables and charts are moved by themselves; a column of words that nobody sees yet stretches no row."""
    measure = (
        "<script>document.title = JSON.stringify([document.documentElement.scrollWidth, innerWidth, "
        "Math.max(...[...document.querySelectorAll('.account tr')].map(row => row.offsetHeight))])</script></body>"
    )
    bare = re.sub(r"<script.*?</script>|<meta http-equiv[^>]*>", "", page, flags=re.DOTALL)
    document, _ = browse(tmp_path, bare.replace("</body>", measure), "--window-size=400,900")
    width, room, highest = json.loads(re.search("<title>(.*?)</title>", document)[1])
    assert width <= room <= 500
    assert highest < 80


def test_hostile_text_stays_text(tmp_path):
    hostile = '</script><img src=x onerror="alert(1)">'
    result = answer(case(offers=[offer(instance=hostile)], quality=hostile, paths=20), notes=[hostile])
    document, log = browse(tmp_path, render_cost_page(replace(result, provenance={"files": [hostile]})))
    assert "alert(1)" in document
    assert "<img" not in re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
    assert "Refused" not in log
    assert "CONSOLE" not in log
