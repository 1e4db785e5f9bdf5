"""Takes tensors of any kind apart into leaves: plain strided memory, or a number, or nothing readable.

A contiguous CPU leaf is read straight from its memory, without a torch operation. Everything else is made contiguous
or taken apart (sparse, quantised, sharded, wrapped) on the device where it lives.
"""

from __future__ import annotations

import ctypes
import struct
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ..trace.orders import xxhash_folder
from . import hashing
from .mixing import mixed_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

xxhash_digest = hashing.find(xxhash_folder())

MIXED = "mix128"
CPU_ALGORITHM = "xxh3_128" if xxhash_digest else MIXED
"""Digest algorithm of tensors in main memory; tensors on accelerators always use ``mix128``."""

_FORMATS = {
    torch.float64: "d",
    torch.float32: "f",
    torch.int64: "q",
    torch.int32: "i",
    torch.int16: "h",
    torch.int8: "b",
    torch.uint8: "B",
    torch.bool: "?",
}
_NOT_YET = ("UninitializedParameter", "UninitializedBuffer")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class NumberLeaf:
    """A plain number, as some optimizers keep their step counter."""

    algorithm = ""
    device = "cpu"
    elements = 1

    def __init__(self, number: float) -> None:
        self._number = float(number)
        self.label = type(number).__name__

    def digest(self) -> bytes:
        """Return its bytes."""
        return struct.pack("<d", self._number)

    def values(self, count: int) -> list[float]:
        """Return the number itself."""
        return [self._number][:count]


class HollowLeaf:
    """A tensor without readable content: meta, fake, not initialised, or of an unknown kind."""

    algorithm = ""
    device = "cpu"
    elements = 0

    def __init__(self, tensor: Any, reason: str) -> None:
        shape = None if reason in _NOT_YET else tuple(tensor.shape)
        self.label = f"{reason}|{shape}|{tensor.dtype}"

    def digest(self) -> bytes:
        """Return nothing."""
        return b""

    def values(self, count: int) -> list[float]:
        """Return nothing."""
        return [0.0] * min(count, 0)


class TensorLeaf:
    """Strided memory of one tensor."""

    def __init__(self, tensor: Any) -> None:
        self.label = f"{tuple(tensor.shape)}|{tensor.dtype}"
        self.device = tensor.device.type
        self.elements = tensor.numel()
        self.algorithm = CPU_ALGORITHM if self.device == "cpu" else MIXED
        self.tensor = _contiguous(tensor)

    def digest(self) -> bytes:
        """Digest every byte in row-major order."""
        if self.device == "cpu" and xxhash_digest is not None:
            return xxhash_digest(_memory(self.tensor))
        return mixed_digest(self.tensor)

    def values(self, count: int) -> list[float]:
        """Return ``count`` numbers at evenly spaced positions (the real and imaginary parts of complex ones)."""
        size = self.tensor.numel()
        count = min(count, size)
        if count == 0:
            return []
        code: Any = _FORMATS.get(self.tensor.dtype)
        if code is None or self.device != "cpu":
            return _gathered(self.tensor, count)
        memory = memoryview(_memory(self.tensor)).cast("B").cast(code)
        return [float(memory[(2 * i + 1) * size // (2 * count)]) for i in range(count)]


Leaf = NumberLeaf | HollowLeaf | TensorLeaf


@contextmanager
def undisturbed() -> Iterator[None]:
    """Read tensors outside autograd and outside every torch mode that the script has switched on."""
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(torch._C.DisableTorchFunction())
        if torch._C._len_torch_dispatch_stack():
            from torch.utils._python_dispatch import _disable_current_modes

            stack.enter_context(_disable_current_modes())
        yield


def leaves_of(name: str, item: Any) -> list[tuple[str, Leaf]]:
    """Return the named leaves of a tensor or number; call it `undisturbed`."""
    if isinstance(item, (bool, int, float)):
        return [(name, NumberLeaf(item))]
    try:
        parts = None if _is_simple(item) else _parts(item)
        if parts is None:
            return [(name, TensorLeaf(item))]
        if isinstance(parts, str):
            return [(name, HollowLeaf(item, parts))]
        return [leaf for suffix, part in parts for leaf in leaves_of(f"{name}{suffix}", part)]
    except Exception as error:
        return [(name, HollowLeaf(item, f"unreadable ({type(error).__name__})"))]


def _is_simple(tensor: Any) -> bool:
    return (
        type(tensor) in _PLAIN
        and tensor.layout == torch.strided
        and tensor.device.type != "meta"
        and not tensor.is_quantized
        and not tensor.is_nested
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    )


def _parts(tensor: Any) -> list[tuple[str, Any]] | str | None:
    """Return the parts of a composite tensor, the reason why there is nothing to read, or None when it is plain."""
    hollow = _hollow(tensor)
    if hollow:
        return hollow
    if hasattr(tensor, "placements") and hasattr(tensor, "_local_tensor"):
        return [(f"@{tensor.placements}", tensor._local_tensor)]
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return [(f".{name}", getattr(tensor, name)) for name in names]
    return _layout_parts(tensor)


def _hollow(tensor: Any) -> str:
    kind = type(tensor).__name__
    if kind in ("FakeTensor", "FunctionalTensor", *_NOT_YET):
        return kind
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return "functorch"
    return "meta" if tensor.device.type == "meta" else ""


def _layout_parts(tensor: Any) -> list[tuple[str, Any]] | None:
    if tensor.is_nested:
        return [(f"[{i}]", part) for i, part in enumerate(tensor.unbind())]
    if tensor.layout != torch.strided:
        return _sparse_parts(tensor)
    return [(".integers", tensor.int_repr()), *_scales(tensor)] if tensor.is_quantized else None


def _sparse_parts(tensor: Any) -> list[tuple[str, Any]]:
    if tensor.layout == torch.sparse_coo:
        tensor = tensor.coalesce()
        return [(".indices", tensor.indices()), (".values", tensor.values())]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        places = [(".rows", tensor.crow_indices()), (".columns", tensor.col_indices())]
        return [*places, (".values", tensor.values())]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        places = [(".columns", tensor.ccol_indices()), (".rows", tensor.row_indices())]
        return [*places, (".values", tensor.values())]
    return [(".dense", tensor.to_dense())]


def _scales(tensor: Any) -> list[tuple[str, Any]]:
    if tensor.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return [(".scale", tensor.q_scale()), (".zero_point", tensor.q_zero_point())]
    scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
    return [(".scale", scales), (".zero_point", zeros)]


def _contiguous(tensor: Any) -> Any:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.detach().resolve_conj())
    if tensor.is_neg():
        tensor = tensor.detach().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.detach().contiguous()


def _memory(tensor: Any) -> Any:
    size = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b""


def _gathered(tensor: Any, count: int) -> list[float]:
    places = torch.arange(count, dtype=torch.int64, device=tensor.device)
    places = (2 * places + 1) * tensor.numel() // (2 * count)
    numbers = tensor.detach().reshape(-1)[places]
    return [
        float(number)
        for number in numbers.to(torch.float32 if _is_small(numbers) else torch.float64).tolist()
    ]


def _is_small(numbers: Any) -> bool:
    """Return whether single precision holds the numbers exactly (some devices know no double)."""
    return bool(numbers.dtype.is_floating_point and numbers.element_size() <= 4)
