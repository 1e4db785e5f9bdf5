"""The gradients of an open accumulation window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class OpenWindow:
    """What was gathered since the last update: gradients by parameter, and the count of micro-steps.

    Args:
        models: by name.

    Attributes:
        micro_steps: how many micro-steps the open window has.
    """

    def __init__(self, models: Mapping[str, Any]) -> None:
        self._models = dict(models)
        self.micro_steps = 0

    def state_dict(self) -> dict[str, Any]:
        """Return what was gathered; nothing between two windows."""
        if not self.micro_steps:
            return {"micro_steps": 0, "gradients": {}}
        gradients = {
            name: parameter.grad for name, parameter in self._parameters() if parameter.grad is not None
        }
        return {"micro_steps": self.micro_steps, "gradients": gradients}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put gradients back, copied, for the training adds to them in place."""
        self.micro_steps = int(state["micro_steps"])
        gathered = state["gradients"]
        for name, parameter in self._parameters():
            found = gathered.get(name)
            parameter.grad = None if found is None else found.detach().clone().to(parameter.device)

    def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
        for model_name, model in self._models.items():
            if isinstance(model, torch.Tensor):
                yield model_name, model
                continue
            for name, parameter in model.named_parameters():
                yield f"{model_name}.{name}", parameter
