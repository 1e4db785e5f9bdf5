"""What ``run.log`` is given reaches TensorBoard, W&B and functions, step by step, also over an interruption."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from run_scripts import run_script

STAND_INS = Path(__file__).parents[1] / "stand_ins"

SCRIPT = """
    import os, sys
    import torch, samestep

    if "begun" in sys.argv:
        import wandb
        wandb.init(project="pilot", id="pilot", resume="allow")
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    run = samestep.Run("root", model=model, optimizer=optimizer, save=3, asynchronous=False,
                       log_to=sys.argv[1] if sys.argv[1] != "none" else None)
    for step in range(run.restore(), 8):
        optimizer.zero_grad()
        loss = model(torch.full((2, 4), float(step))).square().mean()
        run.log(loss=loss, rate=0.1)
        run.log(late=step)
        loss.backward()
        optimizer.step()
        if step == int(sys.argv[2]):
            run._life.scalars.flush()
            os._exit(9)
        if "ended" in sys.argv and step == 5:
            wandb.finish()
        run.step_done()
        if run.due():
            run.save()
    run.close()
    if "begun" in sys.argv:
        wandb.finish()
"""


def logged(folder):
    """Numbers by step as they stand beside the journals, the later attempt's where a step was repeated."""
    found = {}
    for path in sorted((folder / "root/logs").glob("scalars-*.jsonl")):
        for line in map(json.loads, path.read_text().splitlines()):
            numbers = {name: value for name, value in line.items() if name not in ("step", "at")}
            found[line["step"]] = found.get(line["step"], {}) | numbers
    return found


def wandb_rows(folder):
    rows = [json.loads(line) for line in (folder / "wandb-history.jsonl").read_text().splitlines()]
    assert len({row["_step"] for row in rows}) == len(rows)
    return {row.pop("_step"): row for row in rows}


@pytest.mark.parametrize(
    "asked",
    [pytest.param("none", id="by-itself"), pytest.param("wandb", id="asked-for", marks=pytest.mark.full)],
)
def test_a_wandb_run_that_has_begun_gets_every_step_once(asked, tmp_path):
    first = run_script(SCRIPT, tmp_path, asked, 4, "begun", path=[STAND_INS])
    assert first.exit_code == 9, first.text
    resumed = run_script(SCRIPT, tmp_path, asked, 99, "begun", path=[STAND_INS])
    assert resumed.exit_code == 0, resumed.text
    rows = wandb_rows(tmp_path)
    assert rows == logged(tmp_path)
    assert sorted(rows) == list(range(1, 9))
    assert all(row.keys() == {"loss", "rate", "late"} for row in rows.values())


def test_wandb_that_was_asked_for_and_has_no_run_is_refused_before_any_step(tmp_path):
    refused = run_script(SCRIPT, tmp_path, "wandb", 99, path=[STAND_INS])
    assert refused.exit_code == 1
    assert "no W&B run has begun" in refused.text
    assert "wandb.init(" in refused.text
    assert logged(tmp_path) == {}


def test_what_is_not_installed_is_named_with_how_to_install_it(tmp_path):
    (tmp_path / "wandb.py").write_text("raise ImportError('no such package')")
    refused = run_script(SCRIPT, tmp_path, "wandb", 99, path=[tmp_path])
    assert refused.exit_code == 1
    assert "pip install wandb" in refused.text


def test_a_receiver_that_fails_is_said_once_and_ends_no_training(tmp_path):
    ran = run_script(SCRIPT, tmp_path, "wandb", 99, "begun", "ended", path=[STAND_INS])
    assert ran.exit_code == 0, ran.text
    assert ran.text.count("wandb did not take what was logged: Error: You must call wandb.init()") == 1
    assert sorted(logged(tmp_path)) == list(range(1, 9))


def test_tensorboard_shows_every_step_once_over_an_interruption(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    assert run_script(SCRIPT, tmp_path, "tensorboard", 4).exit_code == 9
    resumed = run_script(SCRIPT, tmp_path, "tensorboard", 99)
    assert resumed.exit_code == 0, resumed.text
    events = accumulator.EventAccumulator(str(tmp_path / "root/logs/tensorboard")).Reload()
    expected = logged(tmp_path)
    assert set(events.Tags()["scalars"]) == {"loss", "rate", "late"}
    for name in ("loss", "rate", "late"):
        shown = events.Scalars(name)
        assert [event.step for event in shown] == list(range(1, 9))
        assert [event.value for event in shown] == pytest.approx(
            [expected[event.step][name] for event in shown]
        )
