"""When a step is finished, and what may wait for the next update."""

from __future__ import annotations

import pytest
import torch

from samestep.run.boundary import Boundary


@pytest.fixture
def parameter():
    return torch.nn.Parameter(torch.zeros(2))


@pytest.fixture
def optimizer(parameter):
    return torch.optim.SGD([parameter], lr=1.0)


def update(optimizer, parameter):
    parameter.grad = torch.ones(2)
    optimizer.step()


def test_a_step_is_finished_when_an_optimizer_was_called(optimizer, parameter):
    boundary = Boundary([optimizer])
    assert not boundary.passed()
    update(optimizer, parameter)
    assert boundary.pending
    assert boundary.passed()
    assert not boundary.passed()


def test_two_optimizers_make_one_step(optimizer, parameter):
    other = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    boundary = Boundary([optimizer, other])
    update(optimizer, parameter)
    other.step()
    assert boundary.passed()
    assert not boundary.passed()


def test_an_update_that_a_scaler_skips_finishes_the_step(optimizer, parameter):
    scaler = torch.amp.GradScaler("cpu")
    boundary = Boundary([optimizer], [scaler])
    scaler.scale(parameter.sum()).backward()
    parameter.grad[0] = float("inf")
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(parameter.detach(), torch.zeros(2))
    assert boundary.passed()


def test_without_an_optimizer_every_return_is_a_boundary():
    assert Boundary([]).passed()


def test_the_guard_is_called_once_and_before_the_weights_change(optimizer, parameter):
    seen = []
    boundary = Boundary([optimizer])
    boundary.guard(lambda: seen.append(parameter.detach().clone()))
    update(optimizer, parameter)
    update(optimizer, parameter)
    assert [value.tolist() for value in seen] == [[0.0, 0.0]]


def test_an_optimizer_of_another_make_is_followed_too(parameter):
    class Own:
        def step(self):
            with torch.no_grad():
                parameter.sub_(1.0)

    own = Own()
    boundary = Boundary([own])
    own.step()
    assert boundary.passed()
    boundary.close()
    assert "step" not in vars(own)


def test_closing_leaves_optimizers_and_scalers_as_they_were(optimizer, parameter):
    scaler = torch.amp.GradScaler("cpu")
    boundary = Boundary([optimizer], [scaler])
    boundary.close()
    update(optimizer, parameter)
    assert not boundary.passed()
    assert "step" not in vars(scaler)
