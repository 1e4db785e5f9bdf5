"""``samestep report`` and ``samestep compare`` at the command line."""

import json

import pytest
from click.testing import CliRunner

from report_samples import defect_result
from samestep.cli.compare import compare
from samestep.cli.report import report
from samestep.errors import UsageError
from samestep.report import write_reports
from samestep.trace import Header, MicroStep, Quantity, State, StepRecord
from samestep.trace.records import to_plain


def write_trace(folder, losses):
    """Write the trace of a run with these losses and return its file."""
    folder.mkdir()
    records = [Header(attempt=folder.name, argv=["train.py"], pid=1, parent_pid=0)]
    for index, loss in enumerate(losses, start=1):
        before, after = (Quantity(f"xxh3:{number}", 1, 1) for number in (index - 1, index))
        micro = MicroStep(inputs=f"xxh3:batch-{index}", forwards=1, loss=loss)
        records.append(StepRecord(index, State(weights=before), micro_steps=[micro], weights_after=after))
    path = folder / "trace-1.jsonl"
    path.write_text("".join(json.dumps(to_plain(record)) + "\n" for record in records))
    return path


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one drill behind it."""
    folder = tmp_path / ".samestep" / "runs" / "r1"
    write_reports(defect_result(), folder)
    (tmp_path / ".samestep" / "latest").symlink_to("runs/r1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(command, *arguments):
    result = CliRunner().invoke(command, [str(a) for a in arguments], standalone_mode=False)
    if result.exception:
        raise result.exception
    return result


@pytest.mark.parametrize("run", [[], ["r1"], [".samestep/runs/r1"], [".samestep/latest/drill.json"]])
def test_a_run_is_shown_again(project, run):
    output = shown(report, *run).output
    assert "checkpoint-18/optimizer.pt missing" in output
    assert "report.html" in output.splitlines()[-1]
    assert output.splitlines()[-1].endswith("exit 1")


@pytest.mark.parametrize(
    ("form", "start"),
    [
        ("json", "{"),
        ("html", "<!doctype html>"),
        ("junit", "<?xml"),
        ("markdown", "## "),
        ("github", "::error"),
    ],
)
def test_every_format_goes_to_standard_output(project, form, start):
    assert shown(report, "--format", form).output.lstrip().startswith(start)


def test_json_is_short_for_the_format(project):
    assert json.loads(shown(report, "--json").output) == json.loads(shown(report, "--format", "json").output)


def test_output_goes_to_a_file(project):
    result = shown(report, "--format", "markdown", "--output", "out.md")
    assert (project / "out.md").read_text() == (project / ".samestep/latest/summary.md").read_text()
    assert "## " not in result.stdout


def test_an_unknown_run_is_a_usage_error(project):
    with pytest.raises(UsageError, match="r9") as caught:
        shown(report, "r9")
    assert "known runs: r1" in caught.value.hint


def test_equal_traces_exit_0_and_different_ones_1(tmp_path):
    write_trace(tmp_path / "one", losses=[1.0, 0.5])
    write_trace(tmp_path / "two", losses=[1.0, 0.5])
    write_trace(tmp_path / "three", losses=[1.0, 0.7])
    assert shown(compare, tmp_path / "one", tmp_path / "two").return_value == 0
    different = shown(compare, tmp_path / "one", tmp_path / "three")
    assert different.return_value == 1
    assert "first difference at step 2" in different.output


def test_files_are_compared_like_folders_and_json_has_a_schema(tmp_path):
    files = [write_trace(tmp_path / name, losses=[1.0, 0.5]) for name in ("one", "two")]
    plain = json.loads(shown(compare, "--json", *files).output)
    assert plain["schema"] == "samestep.compare/1"
    assert plain["same"] is True


def test_a_folder_without_traces_is_a_usage_error_that_names_its_folders(tmp_path):
    write_trace(tmp_path / "control-1", losses=[1.0])
    with pytest.raises(UsageError, match="no trace with a step") as caught:
        shown(compare, tmp_path, tmp_path)
    assert "control-1" in caught.value.hint
    with pytest.raises(UsageError, match="does not exist"):
        shown(compare, tmp_path / "nowhere", tmp_path)
