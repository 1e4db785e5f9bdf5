"""What the reports of a cost answer say, whatever form they take."""

from __future__ import annotations

import itertools
import json
import math
import re
from html.parser import HTMLParser

import jsonschema
import pytest
from msgspec.structs import replace

from cost_samples import HOUR, case, offer, quantity, seen
from samestep.cost.answering import answer
from samestep.cost.example import NOTE, ten_hours
from samestep.cost.inputs import Exponential, Progress
from samestep.errors import ExitCode, UsageError
from samestep.ledger import Ledger, Row
from samestep.report.cost import decode_cost, encode_cost, load_cost, render_cost, words, write_cost
from samestep.report.cost.accounts import MONEY, TIME, columns, lines, sums
from samestep.report.cost.charts import chart_specs
from samestep.report.cost.html import render_cost_page
from samestep.report.cost.series import bins, interval_rows, marks, waterfall_rows
from samestep.report.offline import SIZE_LIMIT_BYTES
from samestep.report.schema import cost_schema


@pytest.fixture(scope="module")
def example():
    return answer(ten_hours(), notes=[NOTE])


@pytest.fixture(scope="module")
def plain():
    wanted = case(
        offers=[offer(storage_month=0.02), offer(instance="other", spot=1.5, on_demand=2.5)],
        kept_bytes=quantity(5e9),
        deadline_seconds=2.4 * HOUR,
        budget=3.0,
    )
    recorded = {"time": Ledger(unit="s", rows={Row.UNIQUE: 100.0, Row.IDLE: 5.0})}
    found = answer(wanted, notes=["a note <b>with</b> marks"])
    steps = {"accepted": 100, "executed": 120, "lost": 20}
    return replace(found, actual=recorded, expected=recorded, actual_steps=steps)


@pytest.fixture(scope="module")
def undecided():
    return answer(case(lives=seen(3)))


def test_json_comes_back_as_it_was(example, plain, undecided):
    for result in (example, plain, undecided):
        assert decode_cost(encode_cost(result), "it") == result


@pytest.fixture(scope="module")
def given_up():
    return answer(case(lives=seen(100, 5.0), interval_seconds=600.0, deadline_seconds=HOUR, paths=5))


def test_an_end_that_never_comes_survives_json(given_up):
    again = decode_cost(encode_cost(given_up), "it")
    assert math.isinf(again.offers[0].spot.finish_seconds.mean)
    jsonschema.Draft202012Validator(cost_schema()).validate(json.loads(encode_cost(given_up)))


def test_figures_of_runs_that_were_given_up_are_shown_as_lower_bounds(given_up):
    text, page = render_cost(given_up, width=400), render_cost_page(given_up)
    for told in ("≥ $13.", "not finished", "not known", "at least 1", "spot (not finished)"):
        assert told in text
        assert told in page
    assert "never ends" not in text
    assert "Infinity" not in page


def test_results_validate_against_the_published_schema(example, plain, undecided):
    for result in (example, plain, undecided):
        jsonschema.Draft202012Validator(cost_schema()).validate(json.loads(encode_cost(result)))


def test_a_result_without_a_choice_does_not_validate(example):
    tree = json.loads(encode_cost(example))
    del tree["choice"]
    with pytest.raises(jsonschema.ValidationError, match="choice"):
        jsonschema.Draft202012Validator(cost_schema()).validate(tree)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"{", "no complete JSON"),
        (b"[]", "schema None"),
        (b'{"schema": "samestep.cost/9"}', "samestep.cost/9"),
        (b'{"schema": "samestep.cost/1"}', "no samestep.cost/1 result"),
        (b'{"schema": "samestep.cost/1", "offers": [3], "zones": 1}', "no samestep.cost/1 result:"),
    ],
)
def test_what_is_no_result_is_refused_by_name(data, said):
    with pytest.raises(UsageError, match=said):
        decode_cost(data, "cost.json")


def test_files_are_written_and_read_again(tmp_path, example):
    paths = write_cost(example, tmp_path / "new")
    assert load_cost(tmp_path / "new") == example == load_cost(paths["json"])
    with pytest.raises(UsageError, match="cannot read"):
        load_cost(tmp_path / "nowhere")


def test_the_exit_code_says_whether_it_is_decided(example, undecided):
    assert words.exit_code(example) == ExitCode.HOLDS
    assert words.exit_code(undecided) == ExitCode.INCONCLUSIVE


def test_an_offer_without_on_demand_price_is_shown_beside_the_one_it_is_compared_with():
    offers = [offer(instance="odd", on_demand=None), offer(instance="plain", on_demand=2.0, spot=None)]
    result = answer(case(offers=offers, paths=50))
    row = next(line for line in render_cost(result, width=300).splitlines() if line.startswith("north odd"))
    assert re.search(r" 0.50 .* \$4.08 \(north plain\) .*% less .* 0\.\d\d or .* spot", row), row
    assert "$4.08 (north plain)" in render_cost_page(result)


def test_shown_rows_add_up_to_the_shown_sums(plain):
    shown = columns(plain)
    assert [one.kind for one in shown] == [MONEY, MONEY, TIME, TIME]
    for place, column in enumerate(shown):
        assert math.fsum(line.amounts[place] for line in lines(shown)) == pytest.approx(column.ledger.total)
    machines, total = sums(shown)
    assert total.amounts[0] - machines.amounts[0] == pytest.approx(shown[0].ledger[Row.STORAGE])


def test_the_example_shows_seven_dollars_of_machines(example):
    text = render_cost(example)
    assert re.search(r"machines +\$7\.0000 +\$10\.0000 +14 h +10 h", text)
    assert "Spot pays: 30 % less" in text


def test_progress_in_samples_or_tokens_is_priced_in_them(example):
    work = replace(example.case.work, unit=Progress.TOKENS, per_step=4096)
    shown = replace(example, case=replace(example.case, work=work))
    million = example.offers[0].spot.per_accepted / 4096 * 1e6
    assert re.search(rf"per million tokens +\${million:.2f} ", render_cost(shown))
    assert "per million tokens" in render_cost_page(shown)
    assert "tokens" not in render_cost(example)


def test_lines_fit_the_terminal(plain):
    for line in render_cost(plain, width=100).splitlines():
        assert len(line) <= 125, line


def test_the_last_line_carries_the_exit_code(undecided, example):
    assert render_cost(undecided).rstrip().endswith("exit 4")
    assert render_cost(example, page="x/cost.html").rstrip().splitlines()[-1].count("x/cost.html") == 1


def test_colour_changes_nothing_but_colour(plain):
    painted = render_cost(plain, colour=True)
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == render_cost(plain)


def test_an_undecided_answer_says_what_is_missing(undecided):
    text = render_cost(undecided)
    assert "Undecided" in text
    assert "3 interruptions seen, 10 needed" in text


def test_an_assumption_is_never_hidden():
    assert "is assumed" in render_cost(answer(case(lives=Exponential(mean_seconds=HOUR))))


def test_without_offers_there_is_still_advice():
    text = render_cost(answer(case(offers=[])))
    assert "no offer was given" in text
    assert "save about every" in text


def test_both_waterfalls_have_the_same_rows(plain):
    money, time = (waterfall_rows(plain, kind) for kind in (MONEY, TIME))
    assert [row["row"] for row in money] == [row["row"] for row in time]
    for rows in (money, time):
        *bars, total = rows
        assert all(after["begin"] == before["end"] for before, after in itertools.pairwise(bars))
        assert total["end"] == pytest.approx(bars[-1]["end"])


def test_distributions_hold_every_run_and_leave_out_what_is_far_away(plain):
    for kind in (MONEY, TIME):
        assert math.fsum(row["share"] for row in bins(plain, kind)) == pytest.approx(1)
    near, far = marks(plain, MONEY)
    assert {"half are below", "19 of 20 are below"} <= {mark["mark"] for mark in near}
    assert "on-demand" in {mark["mark"] for mark in far}
    assert bins(answer(ten_hours()), MONEY) == []


def test_the_chosen_interval_lies_on_the_curve_and_in_the_flat_region(plain):
    """Beside the one that costs least: the round number of steps that is advised, and that the run is reckoned with."""
    found = interval_rows(plain)
    best, advised = found.points
    assert best["overhead"] == pytest.approx(min(row["overhead"] for row in found.curve), rel=1e-3)
    assert advised["point"] == "advised"
    assert advised["interval"] * 60 == pytest.approx(plain.offers[0].spot.interval_seconds)
    for point in found.points:
        assert found.flat["low"] < point["interval"] < found.flat["high"]


def test_every_chart_has_a_specification(plain, example):
    assert list(chart_specs(plain)) == ["waterfalls", "distributions", "interval", "offers", "tornado"]
    assert "distributions" not in chart_specs(example), "one value is no distribution"


class Reader(HTMLParser):
    """Collects what a page shows and which scripts it has."""

    def __init__(self):
        super().__init__()
        self.text, self.scripts, self._inside = [], {}, None

    def handle_starttag(self, tag, attrs):
        self._inside = (tag, dict(attrs).get("id")) if tag in ("script", "style") else self._inside

    def handle_endtag(self, tag):
        self._inside = None if tag in ("script", "style") else self._inside

    def handle_data(self, data):
        if self._inside is None:
            self.text.append(data)
        else:
            self.scripts[self._inside] = self.scripts.get(self._inside, "") + data


@pytest.fixture(scope="module")
def page(plain):
    return render_cost_page(plain)


def test_the_page_is_one_bounded_file_that_names_no_other_place(page):
    assert len(page.encode()) <= SIZE_LIMIT_BYTES
    assert "default-src &#39;none&#39;" in page
    for outside in ('src="http', 'href="http', "@import", "url(http", '<link rel="stylesheet"'):
        assert outside not in page


def test_the_page_says_verdict_conditions_ledgers_and_basis(page, plain):
    reader = Reader()
    reader.feed(page)
    text = " ".join(" ".join(reader.text).split())
    for wanted in (
        words.verdict(plain).headline,
        *plain.conditions,
        "Two ledgers",
        "per accepted step",
        "Predicted against recorded",
        "What would turn the verdict",
        "a note <b>with</b> marks",
        "Provenance",
    ):
        assert wanted in text
    assert json.loads(reader.scripts[("script", "stored-result")]) == json.loads(encode_cost(plain))


def test_hostile_names_stay_text():
    result = answer(case(offers=[offer(instance='<img src=x onerror="alert(1)">')], paths=5))
    assert "<img" not in re.sub(r"<script.*?</script>", "", render_cost_page(result), flags=re.DOTALL)
