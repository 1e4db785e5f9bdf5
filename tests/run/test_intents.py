"""A new run from another's weights, the weights alone, and what a restart makes anew."""

from __future__ import annotations

import json
import re
import textwrap

import pytest

from run_scripts import run_script

PROGRAM = """
import json, os, sys, torch, samestep
from pathlib import Path
from samestep.bundle.storage.local import LocalStorage
from samestep.bundle.store import Store
from samestep.run.errors import MethodChanged, RunError

def make(rate=0.1):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    return model, torch.optim.SGD(model.parameters(), lr=rate)

def train(run, model, optimizer, steps):
    for step in range(run.restore(), steps):
        optimizer.zero_grad()
        model(torch.ones(2, 3) * step).square().sum().backward()
        optimizer.step()
        run.step_done()
    run.close()

def answer(value):
    print("answer:", json.dumps(value))

root, second = "root", "second"
model, optimizer = make(1e-4)
train(samestep.Run(root, model=model, optimizer=optimizer, progress=False), model, optimizer, 5)
trained = model.weight.detach().clone()
del model, optimizer
"""


def answers(tmp_path, code):
    """Run ``code`` after a run of five steps, in a process of its own; return its answers."""
    ran = run_script(PROGRAM + textwrap.dedent(code), tmp_path)
    assert ran.exit_code == 0, ran.text
    return [json.loads(answer) for answer in re.findall(r"^answer: (.*)$", ran.text, re.MULTILINE)]


def test_a_new_run_begins_from_the_weights_with_its_lineage_and_goes_on_as_itself(tmp_path):
    found = answers(
        tmp_path,
        """
        for steps in (3, 6):
            model, optimizer = make(1e-3)
            run = samestep.new_run(second, from_=root, because="another rate", model=model, optimizer=optimizer,
                                   progress=False)
            begun = run.restore()
            answer([begun, bool(torch.equal(model.weight, trained))])
            train(run, model, optimizer, steps)
            del model, optimizer, run
        lineage = Store.open(LocalStorage(Path(second)), writing=False).run.lineage
        answer([lineage["because"], lineage["step"], lineage["intent"]])
        """,
    )
    assert found == [[0, True], [3, False], ["another rate", 5, "new-run"]]


def test_a_root_that_began_otherwise_is_no_place_for_a_new_run(tmp_path):
    found = answers(
        tmp_path,
        """
        model, optimizer = make(1e-4)
        run = samestep.new_run(root, from_=root, because="again", model=model, optimizer=optimizer, progress=False)
        try:
            run.restore()
        except MethodChanged as error:
            answer(error.message)
        """,
    )
    assert "which began from nothing" in found[0]


def test_weights_alone_are_loaded_and_nothing_else_is_left_behind(tmp_path):
    found = answers(
        tmp_path,
        """
        before = sorted(os.listdir(root + "/chain"))
        model, _ = make()
        name = samestep.load_weights(model, root)
        untouched = before == sorted(os.listdir(root + "/chain"))
        answer([bool(torch.equal(model.weight, trained)), name[:2], untouched])
        """,
    )
    assert found == [[True, "b-", True]]


@pytest.mark.parametrize("intent", ["new-run", "weights"])
def test_other_intents_are_not_called_run(intent, tmp_path):
    found = answers(
        tmp_path,
        f"""
        try:
            samestep.Run(root, intent="{intent}")
        except RunError as error:
            answer(error.hint)
        """,
    )
    assert {"new-run": "new_run", "weights": "load_weights"}[intent] in found[0]


def test_what_is_rebuilt_is_made_and_checked_at_every_start_and_stands_in_the_contract(tmp_path):
    found = answers(
        tmp_path,
        """
        made = []
        def build(): made.append(1)
        def holds(): return bool(made)
        def fails(): return False
        for check in (holds, fails):
            model, optimizer = make(1e-4)
            run = samestep.Run(root, model=model, optimizer=optimizer, progress=False)
            run.rebuilt("callbacks", by=build, check=check)
            try:
                train(run, model, optimizer, 6)
            except RunError as error:
                answer(error.message)
            del model, optimizer, run
        store = Store.open(LocalStorage(Path(root)), writing=False)
        row = store.bundle("latest").manifest.contract["callbacks"]
        answer([len(made), row.state, row.how, row.test])
        """,
    )
    assert "callbacks was rebuilt by build, and fails says that it is not right" in found[0]
    assert found[1] == [2, "rebuilt", "build", "holds"]
