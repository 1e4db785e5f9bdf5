"""Case files: what they mean, and what is refused with its file, line and key."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

import pytest

from samestep.contract.durations import seconds_in
from samestep.cost.cases.checking import check_case
from samestep.cost.cases.reading import case_of, load_tree, read_case, seconds_of
from samestep.cost.errors import CaseError, CostError, MeasuringError
from samestep.cost.inputs import Capacity, Empirical, Exponential, Progress, Quantity, Replay, Weibull
from samestep.cost.offers import write_offers
from samestep.cost.records.observed import Observed, Seen

CASE = """\
seed = 3
paths = 500

[work]
steps = 36_000

[measured]
step = { value = "1s", low = 0.9, high = "1.2 s", count = 50, source = "pilot" }
save = 30
restart = "10 min"

[risk]
mean = "4h"
interruptions = 12
observed = "2 days"
wait = "20min"
usable_notice = 0.8
notice = "2min"

[policy]
capacity = "greedy"
interval = "auto"
deadline = "36h"
budget = 100

[[offers]]
provider = "own"
instance = "one"
on_demand = 2.0
spot = 1.0
priced = 2026-11-01
"""


@pytest.fixture
def case_file(tmp_path):
    def write(content=CASE, **changes):
        for old, new in changes.items():
            content = content.replace(old, new)
        path = tmp_path / "case.toml"
        path.write_text(content)
        return path

    return write


def changed(old, new):
    assert old in CASE
    return CASE.replace(old, new)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10 min", 600), ("1h 30min", 5400), ("1.5 hours", 5400), ("2d", 172_800), ("1H30M", 5400)],
    ids=str,
)
def test_durations_are_read_as_people_write_them(text, seconds):
    assert seconds_in(text) == seconds
    assert seconds_of(text, "here") == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "soon", "10 parsecs", "-5 s", "1e3 s", "10 minx", "5-10%"], ids=repr
)
def test_what_is_no_duration_is_refused(text):
    assert seconds_in(text) is None
    with pytest.raises(CaseError, match="no duration"):
        seconds_of(text, "here")


def test_a_case_file_is_read(case_file):
    case = read_case(case_file())
    assert (case.seed, case.paths, case.work.steps) == (3, 500, 36_000)
    assert case.measured.step_seconds == Quantity(value=1.0, low=0.9, high=1.2, count=50, source="pilot")
    assert case.measured.restart_seconds == Quantity(value=600.0)
    assert case.risk.lives == Exponential(mean_seconds=14_400, interruptions=12, observed_seconds=172_800)
    assert (case.risk.wait_seconds.value, case.risk.usable_notice, case.risk.notice_seconds) == (
        1200,
        0.8,
        120,
    )
    assert (case.policy.capacity, case.policy.interval_seconds) == (Capacity.GREEDY, None)
    assert case.offers[0].priced == dt.date(2026, 11, 1)
    assert case.offers[0].source.endswith("case.toml:26")
    assert check_case(case) == []


@pytest.mark.parametrize(
    ("old", "new", "told", "hint"),
    [
        ("spot = 1.0", "spot = -1.0", "case.toml:30: offers[1].spot is -1.0; it cannot be negative", ""),
        ("on_demand = 2.0\nspot = 1.0\n", "", "case.toml:26: offers[1] has no price", "on_demand, spot"),
        ("spot = 1.0", "spot = nan", "offers[1].spot is nan, which is no finite number", ""),
        ("spot = 1.0", "spot = inf", "offers[1].spot is inf", ""),
        ("spot = 1.0", "spott = 1.0", "offers[1].spott is no key", "did you mean spot?"),
        ("mean =", "mean_seconds =", "case.toml:13: risk.mean_seconds is no key", "did you mean mean?"),
        ("[policy]", "[polcy]", "case.toml:20: polcy is no key", "did you mean policy?"),
        ('"4h"', '"5-10 %"', "case.toml:13: risk.mean is '5-10 %'", "a label, no rate"),
        ('"4h"', "0", "risk.mean is 0; more than 0", ""),
        ('"4h"', "true", "risk.mean is True; a number", ""),
        ("usable_notice = 0.8", "usable_notice = 80", "risk.usable_notice is 80; a share", "80 % is 0.8"),
        ('"greedy"', '"greddy"', "policy.capacity is 'greddy'", "did you mean greedy?"),
        ("2026-11-01", "2026-11-01T10:00:00", "case.toml:31: offers[1].priced is 2026-11-01T10:00:00, and no", "Z"),
        ("2026-11-01", '"last week"', "offers[1].priced is 'last week'", ""),
        ("low = 0.9", "low = 1.1", "measured.step is 1, which does not lie between", ""),
        ("low = 0.9", "lower = 0.9", "measured.step has the unknown key 'lower'", "did you mean low?"),
        ("steps = 36_000", "", "case.toml:4: work says nothing of how much", "one of steps"),
        ("steps = 36_000", "stepz = 36_000", "case.toml:5: work.stepz is no key", "did you mean steps?"),
        ('mean = "4h"\n', 'model = ["replay"]\n', "risk.model is ['replay']", ""),
        ("steps = 36_000", "steps = 10.5", "work.steps is 10.5; a whole number", ""),
        ("steps = 36_000", "steps = 1\nduration = 5", "work says steps and duration", ""),
        ('mean = "4h"\n', 'model = "weibul"\n', "risk.model is 'weibul'", "did you mean weibull?"),
        ('interruptions = 12\nobserved = "2 days"', "interruptions = 0", "no interruption was seen, and not in", "48h"),
        ("budget = 100", "budget = -1", "policy.budget is -1", ""),
        ("seed = 3", "seed = [", "is no TOML", ""),
    ],
    ids=lambda text: text[:30].replace("\n", " "),
)  # fmt: skip
def test_what_cannot_be_meant_is_refused_with_its_place(case_file, old, new, told, hint):
    with pytest.raises(CostError) as error:
        read_case(case_file(changed(old, new)))
    assert told in error.value.message
    assert hint in error.value.hint


def test_mixed_currencies_are_refused_by_name(case_file):
    other = '\n[[offers]]\nprovider = "own"\ninstance = "two"\nspot = 1\ncurrency = "EUR"\n'
    with pytest.raises(CaseError, match="mixes currencies: own two in EUR, own one in USD"):
        read_case(case_file(CASE + other))


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        ("spot = 1.0", "spot = 3.0", "spot of own one is dearer than on-demand: 3 against 2"),
        ("spot = 1.0", "spot = 2.0", "costs what on-demand costs"),
        ("spot = 1.0\n", "", "is offered on demand only"),
        ("on_demand = 2.0\n", "", "no on-demand price"),
        ("priced = 2026-11-01\n", "", "the prices of own one have no date"),
        ('interval = "auto"', 'interval = "5h"', "is longer than the mean life"),
        ("interruptions = 12", "interruptions = 0", "no interruption was seen in 2 d"),
        ("interruptions = 12", "interruptions = 2", "rests on 2 interruptions in 2 d"),
        ('interruptions = 12\nobserved = "2 days"\n', "", "assumed, not observed"),
        ('mean = "4h"', 'mean = "24h"', "the mean life, 24 h, does not fit what was seen, 12 in 2 d"),
        ('deadline = "36h"', 'deadline = "9h"', "shorter than the steps alone"),
    ],
    ids=lambda text: text[:30].replace("\n", " "),
)
def test_what_is_odd_is_said_and_computed_all_the_same(case_file, old, new, note):
    notes = check_case(read_case(case_file(changed(old, new))))
    assert any(note in said for said in notes), notes


@pytest.mark.parametrize(
    ("amount", "steps", "unit", "per_step"),
    [
        ('duration = "10h"', 36_000, Progress.STEPS, 1.0),
        ("tokens = 1_000_000\nper_step = 4096", 245, Progress.TOKENS, 4096.0),
        ("samples = 1000\nper_step = 10", 100, Progress.SAMPLES, 10.0),
    ],
    ids=["duration", "tokens", "samples"],
)
def test_work_may_be_said_as_time_samples_or_tokens(case_file, amount, steps, unit, per_step):
    work = read_case(case_file(changed("steps = 36_000", amount))).work
    assert (work.steps, work.unit, work.per_step) == (steps, unit, per_step)


def test_tokens_without_how_many_a_step_makes_are_no_amount_of_work(case_file):
    with pytest.raises(CaseError, match="needs per_step"):
        read_case(case_file(changed("steps = 36_000", "tokens = 1000")))


@pytest.mark.parametrize(
    ("said", "lives"),
    [
        ('model = "weibull"\nshape = 0.7\nscale = "1h"', Weibull(shape=0.7, scale_seconds=3600)),
        ('model = "empirical"\nlives = ["1h", 60]', Empirical(lives_seconds=[3600, 60])),
        (
            'interruptions = 4\nobserved = "8h"',
            Exponential(mean_seconds=7200, interruptions=4, observed_seconds=28_800),
        ),
    ],
    ids=["weibull", "empirical", "counted"],
)
def test_lives_may_be_said_in_several_ways(case_file, said, lives):
    content = changed('mean = "4h"\ninterruptions = 12\nobserved = "2 days"', said)
    assert read_case(case_file(content)).risk.lives == lives


def test_traces_lie_beside_the_case(case_file, tmp_path):
    said = 'model = "replay"\nkind = "held"\ntraces = ["zone.json"]'
    content = changed('mean = "4h"\ninterruptions = 12\nobserved = "2 days"', said)
    assert read_case(case_file(content)).risk.lives == Replay(
        paths=[str(tmp_path / "zone.json")], kind="held"
    )


def test_what_a_case_leaves_out_comes_from_the_run(case_file):
    content = changed('save = 30\nrestart = "10 min"\n', "save = 31\n")
    content = content.replace('mean = "4h"\ninterruptions = 12\nobserved = "2 days"\n', "")
    seen = Seen(lives_seconds=(100.0, 300.0), usable_notices=1, notices=1)
    measured = {"restart_seconds": Quantity(value=7.0, count=3), "save_seconds": Quantity(value=1.0)}
    case = read_case(case_file(content), observed=Observed(measured, seen=seen))
    assert case.measured.restart_seconds == Quantity(value=7.0, count=3)
    assert case.measured.save_seconds == Quantity(value=31.0)
    assert case.risk.lives == Exponential(mean_seconds=200.0, interruptions=2, observed_seconds=400.0)
    assert case.risk.usable_notice == 0.8


def test_what_nobody_has_said_or_measured_is_asked_for(case_file):
    with pytest.raises(MeasuringError) as error:
        read_case(case_file(changed('restart = "10 min"\n', "")))
    assert "measured.restart" in error.value.hint
    content = changed('mean = "4h"\ninterruptions = 12\nobserved = "2 days"\n', "")
    with pytest.raises(CaseError, match="does not say how long a machine lives"):
        read_case(case_file(content))


@pytest.mark.parametrize("content", ["", "# nothing yet\n"])
def test_an_empty_case_is_answered_with_what_a_case_has_to_say(case_file, content):
    with pytest.raises(CaseError, match="says nothing") as error:
        read_case(case_file(content))
    for key in ("[work]", "steps", "[measured]", "step", "save", "restart", "[risk]", "mean", "[[offers]]"):
        assert key in error.value.hint


@pytest.mark.parametrize(
    ("content", "told", "near"),
    [
        ("[work]\nstep = 3\n", ":2: work.step", "steps?"),
        ('[work]\nsteps = 3\n[risk]\nmodle = "weibull"\n', ":4: risk.modle", "model?"),
        ("[work]\nsteps = 3\n[policy]\ndeadlin = 3\n", ":4: policy.deadlin", "deadline?"),
    ],
    ids=["work", "risk", "policy"],
)
def test_a_misspelt_key_is_told_before_what_lacks_because_of_it(case_file, content, told, near):
    with pytest.raises(CaseError, match=re.escape(told)) as error:
        read_case(case_file(content))
    assert near in error.value.hint


def test_offers_and_measurements_may_lie_in_files_beside_the_case(case_file, tmp_path):
    case = read_case(case_file())
    write_offers(case.offers, tmp_path / "offers.csv")
    from samestep.cost.records.observed import write_measured

    write_measured(case.measured, tmp_path / "measured.json")
    head, _, rest = CASE.partition("[measured]")
    policy = rest[rest.index("[risk]") : rest.index("[[offers]]")]
    content = f'offers_from = "offers.csv"\n{head}[measured]\nfrom = "measured.json"\n\n{policy}'
    again = read_case(case_file(content))
    assert again.measured == case.measured
    assert again.offers == case.offers


def test_a_tree_of_flags_is_a_case_too(case_file):
    tree, _ = load_tree(case_file())
    tree["measured"]["step"] = "2s"
    case = case_of(tree, place="command line")
    assert case.measured.step_seconds == Quantity(value=2.0)
    with pytest.raises(CaseError, match=r"command line: measured\.step is 'x'"):
        case_of(tree | {"measured": {"step": "x"}})


def test_the_case_that_the_reference_shows_is_one(case_file):
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cost-inputs.md").read_text()
    case = read_case(case_file(page.partition("```toml\n")[2].partition("```")[0]))
    assert (case.work.steps, case.work.unit) == (3815, Progress.TOKENS)
    assert check_case(case) == []


@pytest.mark.parametrize(
    ("model", "key"), [("replay", "traces"), ("weibull", "shape"), ("empirical", "lives")]
)
def test_lives_that_are_not_said_are_asked_for_by_their_key(case_file, model, key):
    said = 'mean = "4h"\ninterruptions = 12\nobserved = "2 days"\n'
    with pytest.raises(CaseError, match=f"risk lacks {key}"):
        read_case(case_file(changed(said, f'model = "{model}"\n')))


def test_a_mean_life_that_nothing_was_seen_of_is_called_assumed(case_file):
    said = "interruptions = 12", "interruptions = 0"
    (note,) = [note for note in check_case(read_case(case_file(changed(*said)))) if "no interruption" in note]
    assert note.endswith("4 h are assumed")


def test_a_mark_of_byte_order_is_no_part_of_a_case(case_file):
    path = case_file()
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_case(path).seed == 3


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(CaseError, match="cannot read"):
        read_case(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(CaseError, match="not UTF-8"):
        read_case(tmp_path / "latin.toml")
