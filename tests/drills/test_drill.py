"""Whole drills of real scripts: real processes, real kills, the verdict a user reads."""

import json
import sys

import jsonschema
import pytest

from drilling import LOOP, ROOT, Project
from samestep.contract import Family
from samestep.drill.options import DrillOptions
from samestep.drill.runner import Drill
from samestep.process import Site, tree_digest

pytestmark = pytest.mark.timeout(900)

ONE_CUT = ("--replay", "cut/after-save")

of_one_drill = pytest.mark.xdist_group("drilled-loop")
"""Tests of a drill that is carried out once: another process would drill again."""


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "project")


@pytest.fixture(scope="module")
def drilled_loop(tmp_path_factory):
    project = Project(tmp_path_factory.mktemp("loop") / "project")
    script = project.script(LOOP)
    before = tree_digest(project.folder)
    drilled = project.drill("--max-states", "8", "--", sys.executable, script, "--out", "{out}")
    return drilled, before


@of_one_drill
def test_a_sound_script_holds_after_every_cut(drilled_loop):
    drilled, _ = drilled_loop
    cuts = [item for item in drilled.result["scenarios"] if item["family"] == "cut"]
    assert len(cuts) >= 6
    assert [item["observed"]["outcome"] for item in cuts] == ["same"] * len(cuts), drilled.stdout
    assert drilled.scenario("cut/after-save")["observed"]["steps_lost"] == 2
    assert drilled.scenario("cut/before-first-save")["observed"]["resume_step"] == 0
    assert drilled.scenario("restart/finished")["observed"]["outcome"] == "same"


@of_one_drill
def test_a_pass_rests_on_proof(drilled_loop):
    drilled, _ = drilled_loop
    control = drilled.result["control"]
    assert control["bit_equal"] is True
    assert control["watching_proven"] is True
    assert control["save_steps"] == [3, 6, 9, 12]
    resumed = [item for item in drilled.result["scenarios"] if item["observed"]["resume_step"] in {3, 6, 9}]
    assert all(item["observed"]["steps_verified"] >= 1 for item in resumed)


@of_one_drill
def test_the_plan_was_written_with_its_expectations(drilled_loop):
    drilled, _ = drilled_loop
    plan = json.loads((drilled.project / ".samestep/latest/plan.json").read_text())
    planned = {item["name"]: item["expected"] for item in plan["scenarios"]}
    assert planned["cut/after-save"] == {"outcomes": ["same"], "resume_step": 3}
    assert plan["criterion"]["kind"] == "exact"


@of_one_drill
def test_the_result_follows_the_published_schema(drilled_loop):
    drilled, _ = drilled_loop
    schema = json.loads((ROOT / "schemas/drill.schema.json").read_text())
    jsonschema.validate(drilled.result, schema)


@of_one_drill
def test_a_drill_leaves_the_project_as_it_was(drilled_loop):
    drilled, before = drilled_loop
    state = drilled.project / ".samestep"
    hidden = state.rename(drilled.project.parent / "state-aside")
    try:
        assert tree_digest(drilled.project) == before
    finally:
        hidden.rename(state)


@of_one_drill
def test_reports_of_all_kinds_are_left(drilled_loop):
    drilled, _ = drilled_loop
    folder = drilled.project / ".samestep/latest"
    assert {"plan.json", "drill.json", "report.html", "junit.xml", "summary.md"} <= {
        p.name for p in folder.iterdir()
    }
    assert (drilled.project / ".samestep/.gitignore").read_text() == "*\n"
    assert f"exit {drilled.exit_code}" in drilled.stdout


@of_one_drill
def test_one_scenario_can_be_repeated(drilled_loop):
    drilled, _ = drilled_loop
    again = Project(drilled.project).drill(
        "--replay", "cut/twice", "--", sys.executable, "train.py", "--out", "{out}"
    )
    assert [item["name"] for item in again.result["scenarios"]] == ["cut/twice"]
    assert again.exit_code == 0, again.stdout


@of_one_drill
def test_another_model_shape_is_refused(drilled_loop):
    drilled, _ = drilled_loop
    again = Project(drilled.project).drill(
        "--only", "transfer", "--also", "--width 5", "--", sys.executable, "train.py", "--out", "{out}"
    )
    (transfer,) = again.result["scenarios"]
    assert (transfer["observed"]["outcome"], transfer["holds"]) == ("refused", True), again.stdout


def test_a_lost_optimizer_is_named_with_its_step(project):
    script = project.script(LOOP.replace('optimizer.load_state_dict(state["optimizer"])', "pass"))
    drilled = project.drill(*ONE_CUT, "--", sys.executable, script, "--out", "{out}")
    assert drilled.exit_code == 1
    cut = drilled.scenario("cut/after-save")
    assert cut["observed"]["outcome"] == "different"
    assert cut["observed"]["first_divergent_step"] == 4
    assert "optimizer-reset" in drilled.slugs("cut/after-save")
    assert "samestep explain optimizer-reset" in drilled.stdout


def test_a_run_that_starts_over_is_told_to_resume(project):
    script = project.script(LOOP.replace("if newest:", "if False:"))
    drilled = project.drill(*ONE_CUT, "--", sys.executable, script, "--out", "{out}")
    assert drilled.exit_code == 1
    assert drilled.scenario("cut/after-save")["observed"]["outcome"] == "restarted"
    assert "silent-restart" in drilled.slugs()
    assert "--resume-with" in drilled.stdout


def test_a_fixed_output_folder_is_named_as_durable(project):
    script = project.script(
        LOOP.replace('"--out", type=pathlib.Path', '"--out", type=pathlib.Path, default="results/run"')
    )
    drilled = project.drill("--durable", "results", *ONE_CUT, "--", sys.executable, script)
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
    assert not (project.folder / "results").exists()


def test_steps_end_a_script_that_would_go_on(project):
    script = project.script(LOOP.replace("range(begin, 12)", "range(begin, 10**9)"))
    to_the_end = ["--replay", "cut/to-the-end"]
    drilled = project.drill("--steps", "10", *to_the_end, "--", sys.executable, script, "--out", "{out}")
    assert drilled.result["control"]["steps"] == 10
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr


TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


@pytest.mark.full
def test_two_ranks_under_torchrun_are_cut_together(project):
    script = project.example("ddp_torchrun.py")
    drilled = project.drill("--only", "cut", "--", *TORCHRUN, script, "--out", "{out}")
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
    assert drilled.result["control"]["ranks"] == 2
    assert {item["observed"]["outcome"] for item in drilled.result["scenarios"]} == {"same"}


def test_a_rank_that_loses_its_state_in_a_kill_of_both_is_named(project):
    text = (ROOT / "examples/ddp_torchrun.py").read_text()
    script = project.script(broken_on_rank_one(text), "ddp_broken.py")
    drilled = project.drill("--replay", "cut/real-kill", "--", *TORCHRUN, script, "--out", "{out}")
    assert drilled.exit_code == 1, drilled.stdout + drilled.stderr
    cut = drilled.scenario("cut/real-kill")
    assert drilled.result["control"]["ranks"] == 2
    assert cut["observed"]["rank"] == 1
    assert {series["rank"] for series in cut["series"]} == {0, 1}


def broken_on_rank_one(text: str) -> str:
    """Let rank 1 forget its random state: after the first resumed step its dropout differs."""
    marker = "torch.set_rng_state("
    assert marker in text
    line = next(line for line in text.splitlines() if marker in line)
    indent = line[: len(line) - len(line.lstrip())]
    return text.replace(line, f'{indent}if __import__("os").environ["RANK"] == "0":\n    {line}')


IN_PARTS = """
    import argparse, pathlib, torch
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    newest = max(args.out.glob("checkpoint-*"), default=None)
    begin = 0
    if newest:
        state = torch.load(newest / "model.pt")
        begin = state["step"]
        model.load_state_dict(state["model"])
        if (newest / "optimizer.pt").exists():
            optimizer.load_state_dict(torch.load(newest / "optimizer.pt"))
    for step in range(begin, 9):
        loss = model(torch.full((2, 4), float(step + 1)) / 12).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 3 == 0:
            folder = args.out / f"checkpoint-{step + 1:04}"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save({"step": step + 1, "model": model.state_dict()}, folder / "model.pt")
            torch.save(optimizer.state_dict(), folder / "optimizer.pt")
"""


@pytest.mark.full
def test_restarts_forked_from_a_preloaded_process_show_what_fresh_ones_show(project):
    command = ["--only", "damage", "--", sys.executable, project.script(IN_PARTS), "--out", "{out}"]
    forked = project.drill(*command).result["scenarios"]
    fresh = project.drill("--fresh", *command).result["scenarios"]
    assert [shown(item) for item in forked] == [shown(item) for item in fresh]
    assert "optimizer-reset" in {record["slug"] for item in forked for record in item["findings"]}
    assert [item["name"] for item in forked if item.get("forked")]
    assert not [item["name"] for item in fresh if item.get("forked")]


def shown(scenario):
    observed = ("outcome", "resume_step", "first_divergent_step", "exit_code")
    findings = [(record["slug"], record.get("step"), record["evidence"]) for record in scenario["findings"]]
    return (scenario["name"], *(scenario["observed"].get(name) for name in observed), findings)


class Silent:
    """A listener that keeps nothing."""

    def __getattr__(self, name):
        return lambda *arguments: None


@pytest.mark.parametrize(
    "which",
    [
        {"replay": "cut/real-kill", "max_states": 0},
        pytest.param(
            {"only": frozenset({Family.CUT, Family.CRASH}), "max_states": 2}, marks=pytest.mark.full
        ),
    ],
    ids=["a-kill", "cuts-and-interrupted-saves"],
)
def test_where_no_namespaces_are_to_be_had_machines_take_turns(project, monkeypatch, which):
    create = Site.create
    monkeypatch.setattr(Site, "create", lambda *args, **kw: create(*args, **{**kw, "sequential": True}))
    script = project.script(LOOP)
    run_folder = project.folder / ".samestep" / "runs" / "sequential"
    run_folder.mkdir(parents=True)
    options = DrillOptions(
        command=[sys.executable, script, "--out", "{out}"],
        project=project.folder,
        run_folder=run_folder,
        jobs=2,
        **which,
    )
    result = Drill(options, Silent(), "test").run()
    assert "cut/real-kill" in {item.name for item in result.scenarios}
    assert {item.observed.outcome for item in result.scenarios} == {"same"}
    assert result.provenance["jobs"] == 1
    assert not any(item.forked for item in result.scenarios)
