"""Takes system calls away from a command, as containers and old kernels do."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src"
_SEALED = """
import ctypes, os, struct, sys
sys.path.insert(0, {source!r})
from samestep.crash.recorder import abi, kernel
from samestep.crash.recorder.filter import _assemble
architecture = abi.here()
number, mask, error = {number}, {mask}, {error}
lines = [(0x20, 0, "", ""), (0x15, number, "", "allow"), (0x20, 16 + 8, "", "")]
lines += [(0x45, mask, "refuse", "allow")] if mask else [(0x15, 0xFFFFFFFF, "refuse", "refuse")]
lines += ["refuse", (0x06, abi.SECCOMP_RET_ERRNO | error, "", ""), "allow", (0x06, abi.SECCOMP_RET_ALLOW, "", "")]
code = _assemble(lines)
kernel.control_process(abi.PR_SET_NO_NEW_PRIVS, 1)
program = kernel._Program(len(code) // 8, code)
kernel.call(architecture.seccomp, abi.SECCOMP_SET_MODE_FILTER, 0, ctypes.addressof(program))
os.execv(sys.argv[1], sys.argv[1:])
"""


def sealed(*, number: int, mask: int = 0, error: int) -> list[str]:
    """Return the prefix of a command line that takes a system call, or some flags of it, away."""
    text = _SEALED.format(source=str(SOURCE), number=number, mask=mask, error=error)
    return [sys.executable, "-c", text]
