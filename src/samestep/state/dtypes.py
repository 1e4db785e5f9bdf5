"""Element types by name, as safetensors and state.json spell them."""

from __future__ import annotations

from typing import Final

import torch

_SAFETENSORS: Final = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
}
_OTHERS: Final = ("complex128", "float8_e4m3fnuz", "float8_e5m2fnuz", "float4_e2m1fn_x2", "complex32")

NAMES: Final = {
    kind: name for name in (*_SAFETENSORS, *_OTHERS) if (kind := getattr(torch, name, None)) is not None
}
"""The name of every type that can be stored."""

DTYPES: Final = {name: kind for kind, name in NAMES.items()}

NAMES_IN_FILES: Final = {said: name for name, said in _SAFETENSORS.items() if name in DTYPES}
"""The name of every type that a safetensors header says."""

_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def header_type(name: str, shape: tuple[int, ...]) -> tuple[str, list[int]]:
    """Return how a safetensors header says the type and shape; a type that it does not know is said as its bytes."""
    known = _SAFETENSORS.get(name)
    if known is not None:
        return known, list(shape)
    return "U8", [*shape, DTYPES[name].itemsize]


def as_bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return a view whose elements are integers of the same bits, which NumPy knows.

    An element of 16 bytes becomes two of 8 in a last dimension.
    """
    if tensor.dtype.itemsize == 16:
        tensor = torch.view_as_real(tensor)
    return tensor.view(_BITS[tensor.dtype.itemsize])
