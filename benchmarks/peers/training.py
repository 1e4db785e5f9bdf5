"""What is trained while it is saved: a GPT of 90 M parameters with fused AdamW, and many small tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from peers.states import gpt, small
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOKENS: Final = 16
_HEADS: Final = 12


class Training:
    """A training on the CPU.

    Args:
        scale: of the state; 1 for 1.08 GB.
    """

    def __init__(self, scale: float = 1.0) -> None:
        torch.manual_seed(0)
        shapes = gpt(scale)["model"]
        self.model: nn.Module = _Gpt(shapes)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
        self._tokens = torch.randint(shapes["wte.weight"][0], (1, _TOKENS + 1))

    def step(self) -> None:
        """Make one training step. Gradients keep their memory, so that steps take the same time."""
        self.optimizer.zero_grad(set_to_none=False)
        self.model(self._tokens).backward()
        self.optimizer.step()

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield every tensor of the state."""
        yield from self.model.state_dict().values()
        for entry in self.optimizer.state.values():
            yield from entry.values()

    def size(self) -> int:
        """Return the bytes of the state."""
        return sum(tensor.nbytes for tensor in self.tensors())


class Small:
    """As many small tensors, without an optimizer; a step changes all of them."""

    def __init__(self, scale: float = 1.0) -> None:
        shapes = small(scale)["model"]
        self.model: nn.Module = nn.ParameterList([torch.randn(shape) for shape in shapes.values()])
        self.optimizer: Any = None

    def step(self) -> None:
        """Change every tensor."""
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.add_(1.0)

    def tensors(self) -> Iterator[torch.Tensor]:
        """Yield every tensor of the state."""
        yield from self.model.parameters()

    def size(self) -> int:
        """Return the bytes of the state."""
        return sum(tensor.nbytes for tensor in self.tensors())


class _Gpt(nn.Module):
    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        super().__init__()
        vocabulary, width = shapes["wte.weight"]
        layers = sum(name.endswith("ln_1.weight") for name in shapes)
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(shapes["wpe.weight"][0], width)
        self.h = nn.ModuleList(_Block(width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the loss of predicting each next token."""
        hidden = self.wte(tokens[:, :-1]) + self.wpe.weight[: tokens.shape[1] - 1]
        for block in self.h:
            hidden = block(hidden)
        logits = self.ln_f(hidden) @ self.wte.weight.T
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


class _Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the next hidden state, of the same shape."""
        batch, length, width = hidden.shape
        parts = self.qkv(self.ln_1(hidden)).view(batch, length, 3, _HEADS, width // _HEADS)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.proj(seen.transpose(1, 2).reshape(batch, length, width))
        return hidden + self.down(nn.functional.gelu(self.up(self.ln_2(hidden))))
