"""What is alive in a process and has no row is found by the name that the script gives it."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest

from samestep.contract import Component
from samestep.run.contract_check import Stray, require_rows
from samestep.run.errors import ContractOpen
from samestep.run.excuses import without_excused

BEGIN = """
import copy, json, sys, torch
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, SequentialLR
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from samestep.run.contract_check import strays
from samestep.run.excuses import without_excused

def found(*tracked, models=(), excused=()):
    models = models or [thing for thing in tracked if isinstance(thing, nn.Module)]
    found = without_excused(strays(tracked, models, sys._getframe(1)), excused)
    return {str(one): one.needed for one in found.left}

model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
samples = TensorDataset(torch.zeros(8, 4))
"""

CASES = {
    "everything is named": ("found(model, optimizer)", {}),
    "an optimizer": ("found(model)", {"optimizer (Adam, optimizer)": True}),
    "a schedule": (
        "schedule = CosineAnnealingLR(optimizer, 5); found(model, optimizer)",
        {"schedule (CosineAnnealingLR, schedule)": True},
    ),
    "schedules inside a schedule are kept with it": (
        (
            "parts = [LinearLR(optimizer), CosineAnnealingLR(optimizer, 5)]\n"
            "found(model, optimizer, SequentialLR(optimizer, parts, [2]))"
        ),
        {},
    ),
    "a schedule does not stand for its optimizer": (
        "schedule = CosineAnnealingLR(optimizer, 5); found(model, schedule)",
        {"optimizer (Adam, optimizer)": True},
    ),
    "a scaler": (
        (
            "class Trainer: pass\ntrainer = Trainer(); trainer.scaler = torch.amp.GradScaler('cpu')\n"
            "found(model, optimizer)"
        ),
        {"trainer.scaler (GradScaler, scaler)": True},
    ),
    "an averaged model": (
        "average = AveragedModel(model); found(model, optimizer)",
        {"average (AveragedModel, ema)": True},
    ),
    "an averaged model that is named": (
        "average = AveragedModel(model); found(model, optimizer, average)",
        {},
    ),
    "a copy of the model": (
        "parts = {'shadow': copy.deepcopy(model)}; found(model, optimizer)",
        {"parts['shadow'] (Sequential, ema)": True},
    ),
    "what wraps the model has its parameters and is no copy": (
        "wrapped = nn.DataParallel(model); found(model, optimizer)",
        {},
    ),
    "an average in tensors of its own": (
        (
            "class EMA: pass\nema = EMA(); ema.shadow = {'0.weight': torch.zeros(4, 4)}\n"
            "found(model, optimizer)"
        ),
        {"ema (EMA, ema)": True},
    ),
    "an average whose tensors are named": (
        (
            "class EMA: pass\nema = EMA(); ema.shadow = {'0.weight': torch.zeros(4, 4)}\n"
            "found(model, optimizer, ema.shadow)"
        ),
        {},
    ),
    "another model is none of the run's": ("other = nn.Linear(3, 3); found(model, optimizer)", {}),
    "a loader": (
        "validation = DataLoader(samples); found(model, optimizer)",
        {"validation (DataLoader, data-position)": True},
    ),
    "a loader with its sampler is named": (
        "loader = DataLoader(samples, sampler=RandomSampler(samples)); found(model, optimizer, loader)",
        {},
    ),
    "a generator is a warning": (
        "noise = torch.Generator(); found(model, optimizer)",
        {"noise (Generator, rng)": False},
    ),
    "a generator of a loader is kept with it": (
        (
            "noise = torch.Generator(); loader = DataLoader(samples, shuffle=True, generator=noise); "
            "found(model, optimizer, loader)"
        ),
        {},
    ),
    "what is said to be irrelevant": ("found(model, excused=['optimizer'])", {}),
    "what is said to be irrelevant by the last part of its name": (
        (
            "class Trainer: pass\ntrainer = Trainer(); trainer.val_loader = DataLoader(samples)\n"
            "found(model, optimizer, excused=['valLoader'])"
        ),
        {},
    ),
    "a name that could mean two things excuses neither": (
        (
            "class Trainer: pass\none, two = Trainer(), Trainer(); one.held = DataLoader(samples); "
            "two.held = DataLoader(samples)\nfound(model, optimizer, excused=['held'])"
        ),
        {"one.held (DataLoader, data-position)": True, "two.held (DataLoader, data-position)": True},
    ),
    "a name that fits as it stands means nothing else": (
        (
            "class Trainer: pass\ntrainer = Trainer(); trainer.held = DataLoader(samples); "
            "held = DataLoader(samples)\nfound(model, optimizer, excused=['held'])"
        ),
        {"trainer.held (DataLoader, data-position)": True},
    ),
    "what nothing holds any more is collected": (
        (
            "def scope():\n    gone = torch.optim.SGD(model.parameters(), lr=1); gone.self = gone\nscope()\n"
            "found(model, optimizer)"
        ),
        {},
    ),
}


@pytest.fixture(scope="module")
def answers():
    """All cases in one process, each in a namespace of its own."""
    cases = {name: code for name, (code, _) in CASES.items()}
    program = BEGIN + textwrap.dedent(
        """
        begin, cases, results = json.loads(sys.stdin.readline()), json.loads(sys.stdin.readline()), {}
        del model, optimizer, samples
        for name, code in cases.items():
            *lines, last = code.replace("; ", "\\n").split("\\n") if "\\n" not in code else code.split("\\n")
            *more, last = last.split("; ")
            source = begin + "\\n".join([*lines, *more]) + f"\\nresult = {last}"
            space = {"__name__": "script"}
            exec(compile(source, name, "exec"), space)
            results[name] = space["result"]
            space.clear()
        print(json.dumps(results))
        """
    )
    given = json.dumps(BEGIN) + "\n" + json.dumps(cases) + "\n"
    done = subprocess.run(
        [sys.executable, "-c", program], input=given, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", CASES)
def test_what_is_alive_without_a_row_is_found(name, answers):
    assert answers[name] == CASES[name][1]


def stray(name, component=Component.DATA_POSITION):
    return Stray(name, "DataLoader", component, needed=True)


def test_the_hint_is_the_call_to_write_for_each():
    found = [stray("trainer.validation"), stray("parts['shadow']", Component.EMA)]
    with pytest.raises(ContractOpen) as raised:
        require_rows(without_excused(found, []))
    _, first, second = raised.value.hint.splitlines()
    assert "run.irrelevant('trainer.validation', because='only evaluations read it')" in first
    assert "Run(..., data=trainer.validation)" in first
    assert "run.track('shadow', parts['shadow'])" in second
    assert """run.irrelevant("parts['shadow']", because='...')""" in second


def test_a_name_taken_for_another_is_told():
    found = without_excused([stray("trainer.validation")], ["validation"])
    assert (found.left, found.offers) == ([], [])
    assert found.taken == ["validation is taken for trainer.validation (DataLoader, data-position)"]


@pytest.mark.parametrize("said", ["validatoin", "validation_loader"])
def test_a_similar_name_excuses_nothing_and_the_right_one_is_offered(said):
    found = without_excused([stray("trainer.validation")], [said, "callbacks"])
    assert found.taken == []
    with pytest.raises(
        ContractOpen, match=f"'{said}' is the name of nothing alive; did you mean 'trainer.val"
    ):
        require_rows(found)
