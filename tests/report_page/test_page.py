"""The page as a reader's browser shows it: charts drawn, nothing complained about, nothing fetched."""

import re

import pytest

from browsing import browse, fetched, needs_chromium
from report_samples import SAMPLES
from samestep.report.html import render_html

pytestmark = needs_chromium


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    """The page of a failing drill, loaded once, with a log of all network activity."""
    folder = tmp_path_factory.mktemp("page")
    document, log = browse(folder, render_html(SAMPLES["defect"]()), f"--log-net-log={folder / 'net.json'}")
    return document, log, folder / "net.json"


def test_every_chart_is_drawn_by_its_script(loaded):
    document, _, _ = loaded
    charts = re.findall(r'<div class="chart[^"]*vega-embed[^>]*data-chart="(\w+)"', document)
    assert charts == ["loss", "rate", "samples", "timeline"]
    assert document.count('<svg xmlns="http://www.w3.org/2000/svg"') >= len(charts)
    assert "vg-tooltip" in document or "mark-symbol" in document


def test_the_browser_has_nothing_to_complain_about(loaded):
    _, log, _ = loaded
    assert [line for line in log.splitlines() if "CONSOLE" in line] == []


def test_nothing_is_fetched(loaded, tmp_path):
    assert fetched(loaded[2]) == []
    browse(tmp_path, '<img src="http://picture.invalid/x">', f"--log-net-log={tmp_path / 'net.json'}")
    assert fetched(tmp_path / "net.json"), "the log would not show a fetch"


def test_the_download_holds_the_result(loaded):
    document, _, _ = loaded
    assert re.search(r'<a id="download" href="blob:', document)


def test_hostile_text_stays_text(tmp_path):
    document, log = browse(tmp_path, render_html(SAMPLES["hostile"]()))
    assert "alert(1)" in document
    assert "<img" not in re.sub(r"<script.*?</script>", "", document, flags=re.DOTALL)
    assert "Refused" not in log
    assert "CONSOLE" not in log


def test_tables_are_there_without_scripts(tmp_path):
    page = render_html(SAMPLES["defect"]())
    bare = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    document, _ = browse(tmp_path, bare)
    assert document.count("<table") >= 4
    assert len(re.findall('<svg [^>]*class="marks"', document)) == 4


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """The page of a drill with interrupted saves."""
    return browse(tmp_path_factory.mktemp("saves"), render_html(SAMPLES["interrupted"]()))


def test_every_interrupted_save_has_a_strip_of_its_operations(interrupted):
    document, log = interrupted
    strips = re.findall(r'<div class="chart[^"]*vega-embed[^>]*data-chart="strip-(save-\d+)"', document)
    assert strips == ["save-4", "save-12"]
    assert "CONSOLE" not in log
    section = document[document.index('id="save-save-12"') :]
    for glyph in ("≠ different", "- refused", "not tried", "delete"):
        assert glyph in section


def test_states_are_folded(interrupted):
    document, _ = interrupted
    matrix = document[document.index('<table class="matrix">') : document.index("What does not hold")]
    assert matrix.count("<tr") < 8
    assert document.count('<table class="states">') == 2


def test_a_compressed_result_can_still_be_shown_and_downloaded(tmp_path, monkeypatch):
    from samestep.report import offline

    monkeypatch.setattr(offline, "SIZE_LIMIT_BYTES", 1)
    document, log = browse(tmp_path, render_html(SAMPLES["defect"]()))
    assert 'type="application/gzip"' in document
    assert re.search(r'<a id="download" href="blob:', document)
    assert "CONSOLE" not in log
