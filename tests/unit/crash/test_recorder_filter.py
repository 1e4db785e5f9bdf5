"""The filter reports exactly the calls that can change files, on every architecture there is a table for."""

from __future__ import annotations

import errno
import mmap
import os
import re
import struct
from pathlib import Path

import pytest

from samestep.crash.recorder import abi, supervisor
from samestep.crash.recorder.filter import program

HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}
NAMES = {abi.SECCOMP_RET_ALLOW: "allow", abi.SECCOMP_RET_USER_NOTIF: "notify"}
EVERYWHERE = pytest.mark.parametrize("architecture", abi.ARCHITECTURES.values(), ids=lambda found: found.name)


def verdict(architecture, call, *args, audit=None):
    """Run the program as the kernel would."""
    number = architecture.calls[call] if isinstance(call, str) else call
    padded = [value & (2**64 - 1) for value in (*args, *[0] * (6 - len(args)))]
    data = struct.pack("=IIQ6Q", number, architecture.audit if audit is None else audit, 0, *padded)
    code = list(struct.iter_unpack("HBBI", program(architecture)))
    position = accumulator = 0
    while True:
        opcode, true, false, operand = code[position]
        position += 1
        if opcode == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, operand)
        elif opcode == 0x15:
            position += true if accumulator == operand else false
        elif opcode == 0x45:
            position += true if accumulator & operand else false
        else:
            assert opcode == 0x06
            return NAMES.get(operand, operand)


@EVERYWHERE
def test_opens_are_reported_when_they_can_write(architecture):
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_TMPFILE | os.O_WRONLY):
        assert verdict(architecture, "openat", -100, 0, flags | os.O_CLOEXEC) == "notify"
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, os.O_PATH | os.O_DIRECTORY):
        assert verdict(architecture, "openat", -100, 0, flags) == "allow"


def test_the_old_open_is_looked_at_as_well():
    assert verdict(abi.X86_64, "open", 0, os.O_WRONLY) == "notify"
    assert verdict(abi.X86_64, "open", 0, os.O_RDONLY) == "allow"


@EVERYWHERE
def test_mappings_are_reported_when_stores_reach_a_file(architecture):
    write, read = mmap.PROT_READ | mmap.PROT_WRITE, mmap.PROT_READ
    cases = [
        (write, mmap.MAP_SHARED, "notify"),
        (write, 3, "notify"),  # MAP_SHARED_VALIDATE
        (read, mmap.MAP_SHARED, "allow"),
        (write, mmap.MAP_PRIVATE, "allow"),
        (write, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, "allow"),
    ]
    for protection, flags, expected in cases:
        assert verdict(architecture, "mmap", 0, 4096, protection, flags, 3) == expected


@EVERYWHERE
def test_only_clones_among_all_ioctls_are_reported(architecture):
    assert verdict(architecture, "ioctl", 3, abi.FICLONE) == "notify"
    assert verdict(architecture, "ioctl", 3, abi.FICLONERANGE) == "notify"
    assert verdict(architecture, "ioctl", 3, 0x5401) == "allow"


@EVERYWHERE
def test_rings_are_refused(architecture):
    assert verdict(architecture, "io_uring_setup") == abi.SECCOMP_RET_ERRNO | errno.ENOSYS


@EVERYWHERE
def test_everything_that_has_a_handler_is_reported(architecture):
    for name in set(architecture.calls) - {"open", "openat", "mmap", "ioctl", "io_uring_setup"}:
        assert verdict(architecture, name) == "notify"
        assert name in supervisor.HANDLERS


@EVERYWHERE
def test_other_calls_and_other_architectures_pass(architecture):
    known = set(architecture.calls.values())
    others = [number for number in range(470) if number not in known]
    assert {verdict(architecture, number) for number in others} == {"allow"}
    assert verdict(architecture, "openat", -100, 0, os.O_WRONLY, audit=0x4000_0003) == "allow"


@EVERYWHERE
def test_numbers_are_those_of_the_kernel_headers(architecture):
    header = HEADERS[architecture.name]
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    found = re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text())
    numbers = {name: int(number) for name, number in found}
    wanted = {**architecture.calls, "seccomp": architecture.seccomp}
    assert {name: numbers.get(name) for name in wanted} == wanted


def test_machines_without_a_table_and_old_kernels_are_refused(monkeypatch):
    real = os.uname()
    for release, machine, expected in [
        ("6.1.0", "riscv64", "no table of system calls for this processor"),
        ("5.10.0-9-amd64", "x86_64", "5.14 or newer"),
        ("4.18.0-553.el8", "aarch64", "5.14 or newer"),
    ]:
        known = os.uname_result((real.sysname, real.nodename, release, real.version, machine))
        monkeypatch.setattr(os, "uname", lambda known=known: known)
        with pytest.raises(abi.RefusedError, match=expected):
            abi.here()
    accepted = os.uname_result((real.sysname, real.nodename, "5.14.0-427.el9", real.version, "aarch64"))
    monkeypatch.setattr(os, "uname", lambda: accepted)
    assert abi.here() is abi.AARCH64
