"""The drill on a terminal."""

import re

from report_samples import defect_result, empty_result, holding_result, noisy_result, optimizer_reset
from samestep.report import TerminalReport, render_scenario_line, render_terminal


def lines_of(result, **options):
    return render_terminal(result, **options).splitlines()


def test_a_passing_scenario_takes_one_line():
    text = render_scenario_line(holding_result().scenarios[0])
    assert " ".join(text.split()) == "cut after step 8, save 6 complete same resumed at 6, 2 steps lost"
    assert "\n" not in text


def test_a_failure_is_in_capitals_and_in_full():
    failing = next(s for s in defect_result().scenarios if not s.holds)
    text = render_scenario_line(failing)
    for part in (
        "DIFFERENT",
        "optimizer-reset",
        "optimizer, schedule",
        "resumes at 18 with a fresh Adam",
        "usual cause: ",
        "fix: ",
        "samestep explain optimizer-reset",
    ):
        assert part in text


def test_a_repeated_finding_is_only_named():
    text = render_terminal(defect_result())
    assert text.count("samestep explain optimizer-reset") == 1
    assert text.count("resumes at 18 with a fresh Adam") == 1
    assert text.count("optimizer-reset ") == 2
    assert "as above" in text


def test_the_same_finding_with_other_evidence_shows_the_evidence_and_not_the_advice():
    page = TerminalReport()
    page.findings([optimizer_reset(19)])
    other = optimizer_reset(19)
    other.evidence = "only the step counter is fresh"
    text = page.findings([other])
    assert "only the step counter is fresh" in text
    assert "fix:" not in text


def test_a_failure_without_a_finding_says_what_was_expected():
    text = render_terminal(defect_result())
    assert "expected same, resumed at step 18; observed lost-work, resumed at step 12" in text


def test_the_last_line_sums_up_and_ends_in_the_exit_code():
    last = lines_of(defect_result(), width=100)[-1]
    assert last.startswith("cut 5 of 5 hold · notice 1 of 1 holds · damage 3 of 6 hold, 2 byte flips noted")
    assert re.search(r"report \.samestep/latest/report\.html +exit 1$", last)


def test_the_exit_code_stands_at_the_right_edge_when_there_is_room():
    assert len(lines_of(empty_result(), width=120)[-1]) == 120


def test_an_interrupted_drill_says_so():
    result = holding_result()
    result.interrupted, result.exit_code = True, 130
    assert "ended before the plan was done" in lines_of(result)[-1]


def test_a_tolerance_is_stated_with_its_sabotages():
    text = render_terminal(noisy_result())
    assert "differ in weights, loss" in text
    assert "eight times the largest relative distance of two controls; 3 of 4 sabotages caught" in text


def test_a_drill_without_scenarios_is_not_silent():
    text = render_terminal(empty_result())
    assert "never-saved" in text
    assert "no save fell inside 24 steps" in text
    assert "nothing was checked" in text


def test_without_colour_there_are_no_escapes_and_with_it_the_text_is_the_same():
    plain = render_terminal(defect_result(), colour=False)
    painted = render_terminal(defect_result(), colour=True)
    assert "\x1b" not in plain
    assert "\x1b" in painted
    assert re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain


def test_evidence_wraps_to_the_width_and_commands_stay_whole():
    for line in lines_of(defect_result(), width=70)[:-1]:
        assert len(line) <= 70 or not line.startswith("    ")


def test_titles_share_a_column_when_they_are_known_beforehand():
    scenarios = defect_result().scenarios
    page = TerminalReport(titles=[s.title for s in scenarios])
    heads = [page.scenario(s).splitlines()[0] for s in scenarios]
    columns = {
        line.index(str(s.observed.outcome), 10) for line, s in zip(heads, scenarios, strict=True) if s.holds
    }
    assert len(columns) == 1
