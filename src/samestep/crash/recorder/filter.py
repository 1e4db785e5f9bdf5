"""The filter that decides inside the kernel which system calls are reported: a classic BPF program.

Everything that cannot change a file passes at full speed: reads, closes, opens for reading, private mappings.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import TYPE_CHECKING

from samestep.crash.recorder import abi

if TYPE_CHECKING:
    from samestep.crash.recorder.abi import Architecture

LOAD, JUMP_EQUAL, JUMP_SET, RETURN = 0x20, 0x15, 0x45, 0x06  # opcodes: ld [k], jeq k, jset k, ret k
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
TMPFILE_BIT = os.O_TMPFILE & ~os.O_DIRECTORY
WRITING_OPEN = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | TMPFILE_BIT

CONDITIONAL = ("open", "openat", "mmap", "ioctl", "io_uring_setup")
"""Calls whose arguments, or a fixed answer, are decided in the filter itself."""

Line = tuple[int, int, str, str]
"""Opcode, operand, label to jump to when true, label when false; an empty label means the next line."""


def program(architecture: Architecture) -> bytes:
    """Return the filter as an array of ``struct sock_filter``."""
    return _assemble(_lines(architecture.calls, architecture.audit))


def _lines(calls: dict[str, int], audit: int) -> list[Line | str]:
    """Write the program down: instructions and, as plain words, the labels that stand before them."""
    plain = sorted(number for name, number in calls.items() if name not in CONDITIONAL)
    lines: list[Line | str] = [
        (LOAD, ARCHITECTURE, "", ""),
        (JUMP_EQUAL, audit, "", "allow"),
        (LOAD, NUMBER, "", ""),
        (JUMP_EQUAL, calls["io_uring_setup"], "refuse", ""),
        *[(JUMP_EQUAL, number, "notify", "") for number in plain],
        *[(JUMP_EQUAL, calls[name], name, "") for name in CONDITIONAL[:-1] if name in calls],
        (RETURN, abi.SECCOMP_RET_ALLOW, "", ""),
    ]
    if "open" in calls:
        lines += ["open", _argument(1), (JUMP_SET, WRITING_OPEN, "notify", "allow")]
    lines += ["openat", _argument(2), (JUMP_SET, WRITING_OPEN, "notify", "allow")]
    lines += ["mmap", _argument(2), (JUMP_SET, abi.PROT_WRITE, "", "allow"), _argument(3)]
    lines += [(JUMP_SET, abi.MAP_ANONYMOUS, "allow", ""), (JUMP_SET, abi.MAP_SHARED, "notify", "allow")]
    lines += ["ioctl", _argument(1), (JUMP_EQUAL, abi.FICLONE, "notify", "")]
    lines += [(JUMP_EQUAL, abi.FICLONERANGE, "notify", "allow")]
    lines += ["notify", (RETURN, abi.SECCOMP_RET_USER_NOTIF, "", "")]
    lines += ["refuse", (RETURN, abi.SECCOMP_RET_ERRNO | errno.ENOSYS, "", "")]
    lines += ["allow", (RETURN, abi.SECCOMP_RET_ALLOW, "", "")]
    return lines


def _argument(index: int) -> Line:
    """Load the low half of an argument; both architectures are little endian."""
    return LOAD, ARGUMENTS + 8 * index, "", ""


def _assemble(lines: list[Line | str]) -> bytes:
    """Replace labels by distances; jumps only lead forward."""
    positions: dict[str, int] = {}
    code: list[Line] = []
    for line in lines:
        if isinstance(line, str):
            positions[line] = len(code)
        else:
            code.append(line)
    packed = b""
    for position, (opcode, operand, true, false) in enumerate(code):
        jumps = [positions[label] - position - 1 if label else 0 for label in (true, false)]
        packed += struct.pack("HBBI", opcode, *jumps, operand)
    return packed
