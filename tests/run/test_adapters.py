"""Defects that frameworks have in saving and resuming are gone when the script uses the adapter for it.

Scripts of the zoo, moved over: ``tests/adapted``. In the default run one of each framework is killed and started again;
in the full run all are, also on two ranks. The drill of each is in ``tests/adapted/test_moved.py``.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from drilling import Project
from moved_scripts import ADAPTED, load_moved
from run_scripts import run_script

MOVED, REFUSED = load_moved()
TIMEOUT_SECONDS = 300
DEFAULT = {("plain", "state"), ("trainer", "noise"), ("fit", "noise"), ("loop", "accumulated")}
KILLED = [
    (moved.script, moved.case)
    for moved in MOVED
    if moved.script in {"trainer", "fit", "loop"} or (moved.script, moved.case) in DEFAULT
]
CASES = [
    pytest.param(
        script,
        case,
        id=f"{script}-{case}",
        marks=[] if (script, case) in DEFAULT else pytest.mark.full,
    )
    for script, case in KILLED
]

KILLED_AT = {
    ("trainer", "noise"): (4, 9),
    ("trainer", "patience"): (9, 13),
    ("fit", "accumulated"): (7, 15),
    ("fit", "stopped"): (9, 14),
    ("loop", "accumulated"): (7,),
}
"""After how many steps a case is killed, where not in the second epoch and at the end of the third."""

STEP = re.compile(r"step \d+ loss \S+ lr \S+ ids [\d,]+")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def train(script, case, out, *more, ranks=0):
    start = [*TORCHRUN, str(ranks)] if ranks else [sys.executable]
    return subprocess.run(
        [*start, str(ADAPTED / f"{script}.py"), "--out", str(out), "--case", case, *more],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


def steps_of(done):
    """Return the words of each step; those of several ranks may stand on one line."""
    return STEP.findall(done.stdout)


@pytest.mark.parametrize(("script", "case"), CASES)
def test_a_killed_training_goes_on_as_if_nothing_had_happened(script, case, tmp_path):
    def forked(out, *more):
        return run_script(ADAPTED / f"{script}.py", tmp_path, "--case", case, "--out", out, *more)

    control = forked("control")
    assert control.exit_code == 0, control.text
    expected = STEP.findall(control.text)
    for step in KILLED_AT.get((script, case), (8, 18)):
        killed = forked("cut", "--kill-at", step)
        assert killed.exit_code == -signal.SIGKILL, killed.text
        assert set(STEP.findall(killed.text)) <= set(expected)
    resumed = train(script, case, tmp_path / "cut")  # in a process that shares nothing with those before
    assert resumed.returncode == 0, resumed.stderr
    assert "resumes from" in resumed.stderr
    steps = steps_of(resumed)
    assert 0 < len(steps) < len(expected)
    assert steps == expected[-len(steps) :]
    again = forked("cut")
    assert (again.exit_code, STEP.findall(again.text)) == (0, []), again.text


@pytest.mark.full
@pytest.mark.parametrize(
    ("script", "case", "step"), [("trainer", "noise", 4), ("fit", "noise", 6), ("loop", "accumulated", 6)]
)
def test_two_ranks_that_are_killed_go_on_as_if_nothing_had_happened(script, case, step, tmp_path):
    control = train(script, case, tmp_path / "control", ranks=2)
    assert control.returncode == 0, control.stderr
    expected = Counter(steps_of(control))
    killed = train(script, case, tmp_path / "cut", "--kill-at", str(step), ranks=2)
    assert killed.returncode != 0
    assert Counter(steps_of(killed)) <= expected
    resumed = train(script, case, tmp_path / "cut", ranks=2)
    assert resumed.returncode == 0, resumed.stderr
    assert "resumes from" in resumed.stderr
    lines = Counter(steps_of(resumed))
    first = min(int(line.split()[1]) for line in lines)
    assert 1 < first <= step + 1
    assert lines == Counter(line for line in steps_of(control) if int(line.split()[1]) >= first)


@pytest.mark.full
@pytest.mark.parametrize(
    ("script", "case", "step", "said"),
    [
        ("trainer", "mid_epoch", 5, "was made by 2 ranks and here are 1"),
        ("fit", "noise", 6, "was made by 2 ranks and here are 1"),
        ("loop", "noise", 6, "would be transferred from 2 to 1 ranks"),
    ],
)
def test_another_number_of_ranks_is_refused(script, case, step, said, tmp_path):
    killed = train(script, case, tmp_path, "--kill-at", str(step), ranks=2)
    assert steps_of(killed), killed.stderr
    refused = train(script, case, tmp_path)
    assert (refused.returncode, steps_of(refused)) == (1, [])
    assert said in refused.stderr
    assert "hint: " in refused.stderr


@pytest.mark.full
@pytest.mark.parametrize("refused", [pytest.param(one, id=one.defect) for one in REFUSED])
def test_what_a_restart_gets_wrong_is_refused_by_name(refused, tmp_path):
    killed = train(refused.script, refused.case, tmp_path, "--kill-at", "9")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    stopped = train(refused.script, refused.case, tmp_path, *refused.args)
    assert (stopped.returncode, steps_of(stopped)) == (1, [])
    assert refused.says in stopped.stderr


@pytest.mark.full
def test_a_fit_on_a_loader_that_nobody_follows_is_refused(tmp_path):
    refused = train("fit", "unwrapped", tmp_path)
    assert refused.returncode == 1
    assert "bundles.loader(loader)" in refused.stderr


@pytest.mark.full
def test_what_an_adapter_could_keep_only_by_half_is_refused(tmp_path):
    from accelerate.utils import DistributedType
    from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy

    from samestep.integrations import accelerate, lightning, trainer_parts
    from samestep.run.errors import RunError

    sharded = SimpleNamespace(distributed_type=DistributedType.FSDP, is_fsdp2=False, parallelism_config=None)
    split = SimpleNamespace(
        distributed_type=DistributedType.MULTI_GPU,
        parallelism_config=SimpleNamespace(non_data_parallel_size=4),
    )
    with pytest.raises(RunError, match="flattens the parameters"):
        accelerate._check(sharded)
    with pytest.raises(RunError, match="4 ranks work on each batch together"):
        accelerate._check(split)
    for kind in (DeepSpeedStrategy, FSDPStrategy):
        with pytest.raises(
            RunError, match=f"{kind.__name__} keeps its state where this adapter does not reach"
        ):
            lightning._check(object.__new__(kind))
    (tmp_path / "samestep-00000.safetensors").touch()
    with pytest.raises(RunError, match="what rank 1, 2 has written is not in"):
        trainer_parts.require_all_ranks(tmp_path, 3)


@pytest.mark.full
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("example", ["transformers_bundles.py", "lightning_bundles.py", "accelerate_run.py"])
def test_the_drill_finds_nothing_in_an_example(example, tmp_path):
    project = Project(tmp_path)
    script = project.example(example)
    drilled = project.drill(
        "--only", "cut,notice,restart,damage", "--", sys.executable, script, "--out", "{out}"
    )
    assert drilled.exit_code == 0, drilled.stdout + drilled.stderr
