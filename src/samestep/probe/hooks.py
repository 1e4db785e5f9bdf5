"""Puts the session's eyes into torch: forwards, backwards, optimizer calls, schedulers, loss scalers, forks."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from .session import Session


def install(session: Session) -> None:
    """Patch torch so that ``session`` hears of every step; done once per process."""
    for watch in (
        _watch_forwards,
        _watch_backwards,
        _watch_updates,
        _watch_scalers,
        _watch_schedulers,
        _watch_data,
    ):
        _tried(watch, session)
    os.register_at_fork(after_in_child=session.forked)
    atexit.register(session.end)


def _tried(watch: Callable[[Session], None], session: Session) -> None:
    try:
        watch(session)
    except Exception as error:
        session.not_followed(watch.__name__.strip("_").replace("_", " "), error)


def _unseen_by_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let ``torch.compile`` step over this frame and look at the next, as it does with torch's own wrapper."""
    with contextlib.suppress(AttributeError):
        dynamo: Any = torch._C._dynamo.eval_frame
        if hasattr(dynamo, "skip_code"):  # before torch 2.7
            dynamo.skip_code(function.__code__)
        else:
            skip, follow = dynamo._FrameAction.SKIP, dynamo._FrameAction.DEFAULT
            dynamo.set_code_exec_strategy(function.__code__, dynamo._FrameExecStrategy(skip, follow))
    return function


def _watch_forwards(session: Session) -> None:
    module_class: Any = torch.nn.Module
    original = module_class.__call__
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or session.deaf or not (self.training and _is_trained(self)):
            return original(self, *args, **kwargs)
        if not session.enter_forward(self, (args, kwargs), sys._getframe(1)):
            return original(self, *args, **kwargs)
        session.in_forward = True
        try:
            outputs = original(self, *args, **kwargs)
        finally:
            session.in_forward = False
        session.leave_forward(outputs)
        return outputs

    module_class.__call__ = _unseen_by_dynamo(call)


def _is_trained(module: Any) -> bool:
    """Return whether this forward can lead to a backward: losses, transforms and frozen models cannot."""
    return (
        torch.is_grad_enabled()
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch._C._is_tracing()
        and any(parameter.requires_grad for parameter in module.parameters())
    )


def _watch_backwards(session: Session) -> None:
    original = torch.autograd.backward
    is_compiling = torch.compiler.is_compiling

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
        if is_compiling() or session.deaf:
            return original(tensors, *args, **kwargs)
        session.enter_backward(tensors, sys._getframe(1))
        session.backwards += 1
        try:
            return original(tensors, *args, **kwargs)
        finally:
            session.backwards -= 1
            session.leave_backward()

    torch.autograd.backward = _unseen_by_dynamo(backward)


def _watch_updates(session: Session) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

    optimizer_class: Any = torch.optim.Optimizer

    def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
        return session.before_update(optimizer, args, kwargs, sys._getframe(1))

    def after(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        session.after_update(optimizer)

    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    session.capture.optimizers.watch(optimizer_class, "__init__", "__setstate__")


def _watch_schedulers(session: Session) -> None:
    from torch.optim import lr_scheduler

    for owner in ("LRScheduler", "ReduceLROnPlateau", "SequentialLR", "ChainedScheduler"):
        session.capture.schedulers.watch(getattr(lr_scheduler, owner), "__init__")


def _watch_data(session: Session) -> None:
    session.loaders.install(torch)


def _watch_scalers(session: Session) -> None:
    scaler_class: Any = torch.amp.GradScaler
    session.capture.scalers.watch(scaler_class, "__init__")
    original = scaler_class.step

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.is_enabled():
            return original(self, optimizer, *args, **kwargs)
        session.before_scaler_step()
        calls = session.calls
        result = original(self, optimizer, *args, **kwargs)
        if session.calls == calls and isinstance(optimizer, torch.optim.Optimizer):
            session.skipped(optimizer, sys._getframe(1))
        return result

    scaler_class.step = step
