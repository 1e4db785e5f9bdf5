"""Page, JUnit, markdown and annotations: complete, bounded, and safe with hostile text."""

import base64
import gzip
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import pytest

from report_samples import SAMPLES, defect_result, empty_result, holding_result, hostile_result, noisy_result
from samestep.report.github import ANNOTATION_LIMIT, render_annotations
from samestep.report.html import render_html
from samestep.report.junit import render_junit
from samestep.report.markdown import escaped, render_markdown
from samestep.report.offline import SIZE_LIMIT_BYTES, embedded_json, flattened
from samestep.report.series import POINT_LIMIT, sample_rows, side_by_side, timeline_rows, value_rows


class Page(HTMLParser):
    """Collects what a browser would run, and the text outside scripts."""

    def __init__(self, text):
        super().__init__()
        self.scripts, self.handlers, self.images, self.text, self._inside = [], [], 0, [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._inside = tag
        names = dict(attrs)
        self.handlers += [name for name in names if name.startswith("on")]
        self.images += tag == "img"
        if tag == "script":
            self.scripts.append([names.get("type", "text/javascript"), names.get("id"), ""])

    def handle_endtag(self, tag):
        self._inside = None

    def handle_data(self, data):
        if self._inside == "script":
            self.scripts[-1][2] += data
        elif self._inside != "style":
            self.text.append(data)


@pytest.fixture(scope="module")
def pages():
    return {kind: render_html(make()) for kind, make in SAMPLES.items()}


def test_the_page_is_one_bounded_file_that_names_no_other_place(pages):
    for page in pages.values():
        assert len(page.encode()) <= SIZE_LIMIT_BYTES
        assert "default-src &#39;none&#39;" in page
        for outside in ('src="http', 'href="http', "@import", "url(http", '<link rel="stylesheet"'):
            assert outside not in page


def test_the_banner_says_what_was_not_checked_and_how_to_repeat(pages):
    head = pages["defect"].split("<main>")[0]
    assert "would silently change this run" in head
    assert "no interruption inside a write was tried" in head
    assert "samestep drill --resume-with" in head


def test_hostile_text_neither_runs_nor_leaves_its_place(pages):
    page = Page(pages["hostile"])
    runnable = [script for script in page.scripts if script[0] == "text/javascript"]
    assert len(runnable) == 1
    assert page.handlers == []
    assert page.images == 0
    assert any("alert(1)" in text for text in page.text)


def test_the_embedded_result_is_the_result(pages):
    scripts = {name: text for _, name, text in Page(pages["hostile"]).scripts}
    embedded = json.loads(scripts["stored-result"])
    assert embedded["message"] == hostile_result().message
    assert embedded["schema"] == "samestep.drill/1"


def test_sections_without_data_say_so(pages):
    text = " ".join(" ".join(Page(pages["empty"]).text).split())
    for missing in (
        "no scenario was carried out",
        "no loss was seen",
        "no component was followed",
        "no control run",
    ):
        assert f"Not measured: {missing}" in text or f"Not measured: there was {missing}" in text


def test_charts_are_drawn_ahead_for_readers_without_scripts(pages):
    assert len(re.findall('<svg [^>]*class="marks"', pages["defect"])) == 4


def unpacked(script):
    """Return the embedded result, of a script element as `Page` collects it."""
    kind, _, text = script
    return json.loads(text if kind == "application/json" else gzip.decompress(base64.b64decode(text)))


def test_a_drill_of_six_hundred_states_stays_under_the_limit_and_keeps_everything():
    result = SAMPLES["interrupted"]()
    states = [item for item in result.scenarios if item.crash]
    result.scenarios = [
        msgspec.structs.replace(states[n % len(states)], name=f"{states[n % len(states)].name}-{n}")
        for n in range(600)
    ]
    page = render_html(result)
    assert len(page.encode()) <= SIZE_LIMIT_BYTES
    scripts = {script[1]: script for script in Page(page).scripts}
    assert len(unpacked(scripts["stored-result"])["scenarios"]) == 600
    assert page.count("<tr") < 700


def test_a_large_drill_stays_under_the_limit():
    result = defect_result()
    series = result.control.series[0]
    count = 20_000
    result.control.series = [
        msgspec.structs.replace(
            series,
            steps=list(range(1, count + 1)),
            loss=[1 / step for step in range(1, count + 1)],
            learning_rate=[1e-3] * count,
            samples=[[step, step + 1] for step in range(count)],
        )
    ]
    page = render_html(result)
    assert len(page.encode()) <= SIZE_LIMIT_BYTES
    scripts = {script[1]: script for script in Page(page).scripts}
    assert len(unpacked(scripts["stored-result"])["scenarios"]) == len(result.scenarios)


def test_json_in_a_script_element_keeps_its_meaning():
    text = json.dumps({"a": "</script><!-- & -->"})
    safe = embedded_json(text)
    assert not set("<>&") & set(safe)
    assert json.loads(safe) == json.loads(text)


def test_provenance_is_flat_and_readable():
    values = {"a": {"b": 1, "c": {"d": True}}, "e": [], "f": ["x", "y"], "g": None}
    assert flattened(values) == [("a.b", "1"), ("a.c.d", "yes"), ("e", "none"), ("f", "x, y"), ("g", "none")]


def test_rows_of_restarts_carry_their_distance_to_the_control():
    rows = value_rows(defect_result(), "loss")
    differences = {r["step"]: r["difference"] for r in rows if r["run"] == "damage-missing-optimizer"}
    assert differences[19] == pytest.approx(0.031)
    assert all(r["difference"] == 0 for r in rows if r["run"] == "cut-after-save")


def test_numbers_that_are_none_make_no_row():
    rows = value_rows(hostile_result(), "loss")
    steps = {row["step"] for row in rows if row["run"] == "cut-after-save"}
    assert {8, 9}.isdisjoint(steps)
    assert 10 in steps


def test_charts_are_thinned_to_a_bound():
    result = defect_result()
    result.control.series[0].steps = list(range(50_000))
    result.control.series[0].loss = [0.5] * 50_000
    result.control.series[0].samples = [[step] for step in range(50_000)]
    assert len(value_rows(result, "loss")) <= POINT_LIMIT
    assert len(sample_rows(result)) <= POINT_LIMIT


def test_samples_known_only_by_digest_are_numbered_as_first_met():
    result = holding_result()
    result.scenarios = []
    result.control.series[0].steps = [1, 2]
    result.control.series[0].samples = [["f00d", "beef"], ["cafe", "f00d"]]
    assert [row["sample"] for row in sample_rows(result)] == [0, 1, 2, 0]


def test_the_timeline_tells_kept_steps_from_lost_ones():
    rows = [r for r in timeline_rows(defect_result()) if r.get("scenario") == "cut-twice"]
    assert [(r["kind"], r["begin"], r["end"]) for r in rows] == [
        ("control", 0, 6),
        ("lost steps", 6, 11),
        ("restart, holds", 6, 13),
    ]


def test_side_by_side_starts_at_the_step_before_the_difference():
    result = defect_result()
    failing = next(s for s in result.scenarios if s.name == "damage-missing-optimizer")
    rows = side_by_side(result, failing)
    assert [row.step for row in rows] == [19, 20, 21, 22]
    assert all(row.differs for row in rows)
    assert rows[0].samples[0] == rows[0].samples[1]


def test_side_by_side_accepts_what_the_tolerance_accepts():
    result = noisy_result()
    first = result.scenarios[0]
    first.series[0].loss = [value * (1 + 1e-6) for value in first.series[0].loss]
    assert not any(row.differs for row in side_by_side(result, first))


def test_junit_counts_failures_and_errors():
    suite = ET.fromstring(render_junit(defect_result()))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("13", "3", "0")
    assert suite.find("testcase/failure").get("type") == "optimizer-reset"
    assert "--replay damage-missing-optimizer" in suite.find("testcase/failure").text
    assert ET.fromstring(render_junit(noisy_result()))[0].get("errors") == "1"


def test_junit_of_a_drill_without_scenarios_is_no_pass():
    suite = ET.fromstring(render_junit(empty_result()))[0]
    assert suite.get("errors") == "1"
    assert suite.find("testcase/error").get("type") == "never-saved"


def test_junit_holds_text_that_xml_cannot():
    result = defect_result()
    result.scenarios[-2].observed.summary = "bad \x00\x1b[31m bytes \ud800"
    ET.fromstring(render_junit(result))


def test_markdown_is_worst_first_and_bounded():
    text = render_markdown(defect_result())
    assert text.index("**DIFFERENT**") < text.index("**LOST-WORK**") < text.index("| same |")
    short = render_markdown(defect_result(), limit=1500)
    assert len(short.encode()) <= 1500
    assert "left out here" in short
    assert short.startswith("## ✗ A damaged checkpoint")


def test_markdown_escapes_markup_and_keeps_tables_whole():
    assert escaped("a|b\n<img> `x` *y*") == "a\\|b &lt;img&gt; \\`x\\` \\*y\\*"
    prose = "".join(render_markdown(hostile_result()).split("```")[::2])
    assert "alert" in prose
    assert "<" not in prose


def test_annotations_are_few_and_one_line_each():
    result = defect_result()
    broken = [s for s in result.scenarios if s.name == "damage-foreign"]
    result.scenarios += [msgspec.structs.replace(broken[0], name=f"x{i}") for i in range(30)]
    lines = render_annotations(result).splitlines()
    assert len(lines) == ANNOTATION_LIMIT
    assert lines[0].startswith("::error title=samestep optimizer-reset::checkpoint-18/optimizer.pt missing")
    assert render_annotations(holding_result()) == ""
    assert render_annotations(noisy_result()).startswith("::warning")


def test_a_setting_and_its_origin_stand_in_one_row():
    values = {"settings": {"steps": {"value": 24, "origin": "flag --steps"}}}
    assert flattened(values) == [("settings.steps", "24 (flag --steps)")]
