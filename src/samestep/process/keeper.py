"""Start a command on its machine and keep its whole process tree together.

A stand-alone script (standard library only, run with ``python -I -S``), the parent of every training command
that a drill starts. It is a *subreaper*: whatever the command leaves behind, in whatever session, becomes its
child and not init's, so the tree stays findable. Only the child enters the namespaces of the machine. The
keeper ends when the tree has ended, and kills the tree when samestep itself disappears (the lifeline closes).

Lines on the report pipe: ``started PID``, ``failed MESSAGE``, ``exited CODE`` (128 + n for signal n).
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from typing import NoReturn

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x0002_0000, 0x1000_0000, 0x4000_0000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
MS_RELATIME, ST_RELATIME = 1 << 21, 4096
KEPT_MOUNT_FLAGS = os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_NODIRATIME
PR_SET_CHILD_SUBREAPER = 36
SIOCSIFFLAGS, IFF_UP, IFF_RUNNING = 0x8914, 0x1, 0x40
CLEAN_UP_SECONDS = 10.0

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, what: str, *arguments: object) -> None:
    """Call a libc function that returns 0, raising its error as OSError with ``what`` was attempted."""
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, flags: int) -> None:
    """Mount without a file system type, as binds and remounts do."""
    paths = os.fsencode(source), os.fsencode(target)
    call("mount", f"mount {target}", *paths, None, ctypes.c_ulong(flags), None)


def bind(source: str, target: str, read_only: bool) -> None:
    """Show ``source`` at ``target``, with everything mounted below it."""
    mount(source, target, MS_BIND | MS_REC)
    if read_only:
        present = os.statvfs(target).f_flag
        # In a user namespace the kernel refuses a remount that would drop a flag the administrator set.
        kept = present & KEPT_MOUNT_FLAGS | (MS_RELATIME if present & ST_RELATIME else 0)
        mount(source, target, MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def enter_user_namespace(uid: int, gid: int) -> None:
    """Keep the user's own ids inside the namespace that was just unshared."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib costs start-up time
            file.write(text)


def raise_loopback() -> None:
    """Switch on the loopback device of a new network namespace."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", IFF_UP | IFF_RUNNING))


def enter(machine: dict[str, object]) -> None:
    """Enter fresh namespaces and lay out the machine's folders in them."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS
    flags |= CLONE_NEWUSER if machine["user_namespace"] else 0
    flags |= CLONE_NEWNET if machine["private_network"] else 0
    call("unshare", "unshare", flags)
    if machine["user_namespace"]:
        enter_user_namespace(uid, gid)
    if machine["private_network"]:
        raise_loopback()
    mount("none", "/", MS_REC | MS_PRIVATE)
    for source, target, read_only in machine["binds"]:  # type: ignore[attr-defined]
        bind(source, target, read_only)


def settle_in(order: dict[str, object]) -> None:
    """In the child: a session of its own, the usual signals, its machine and its working directory."""
    os.setsid()
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
        signal.SIGHUP,
        signal.SIGPIPE,
        signal.SIGXFSZ,
        signal.SIGCHLD,
    ):
        signal.signal(number, signal.SIG_DFL)
    if order["machine"]:
        try:
            enter(order["machine"])  # type: ignore[arg-type]
        except OSError as error:
            raise OSError(
                error.errno, f"its machine could not be entered ({error.strerror or error})"
            ) from error
    try:
        os.chdir(order["cwd"])  # type: ignore[arg-type]
    except OSError as error:
        raise OSError(
            error.errno, f"its working directory {order['cwd']} could not be entered ({error.strerror})"
        ) from error


def become_command(order: dict[str, object], complaint: int) -> NoReturn:
    """In the child: enter the machine and turn into the command; a failure is written to ``complaint``."""
    argv: list[str] = order["argv"]  # type: ignore[assignment]
    try:
        settle_in(order)
        try:
            os.execvp(argv[0], argv)  # noqa: S606 - the command is the user's own
        except OSError as error:
            raise OSError(error.errno, f"it cannot be executed ({error.strerror})") from error
    except OSError as error:
        os.write(complaint, (error.strerror or str(error)).encode())
    os._exit(127)


def launch(order: dict[str, object]) -> tuple[int, str]:
    """Fork the command. Returns its pid and, when it could not be started, why."""
    reader, complaint = os.pipe()
    pid = os.fork()
    if pid == 0:
        become_command(order, complaint)
    os.close(complaint)
    with os.fdopen(reader, "rb") as pipe:
        return pid, pipe.read().decode(errors="replace")


def descendants(ancestor: int) -> list[int]:
    """Pids of all living descendants."""
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            with open(f"/proc/{entry}/stat", "rb") as file:  # noqa: PTH123
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        if state != b"Z":
            children.setdefault(int(parent), []).append(int(entry))
    found, queue = [], [ancestor]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def kill_descendants() -> None:
    """Kill everything below this process until nothing is left, for a bounded time."""
    deadline = time.monotonic() + CLEAN_UP_SECONDS
    while time.monotonic() < deadline:
        left = descendants(os.getpid())
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.002)


def keep(root: int, report: int, lifeline: int, wake: int) -> None:
    """Reap until the tree is gone; kill it if the lifeline breaks."""
    while True:
        ready, _, _ = select.select([lifeline, wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
        if lifeline in ready:
            return kill_descendants()
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == root:
                    code = os.waitstatus_to_exitcode(ended[1])
                    os.write(report, f"exited {code if code >= 0 else 128 - code}\n".encode())
        except ChildProcessError:
            return None


def prepare(order: dict[str, object]) -> None:
    """Become a keeper: adopt orphans, heed no notice, and wake up whenever a child ends."""
    wake, wake_writer = os.pipe()
    order["wake"], order["wake_writer"] = wake, wake_writer
    for name in ("report", "lifeline"):
        os.set_inheritable(order[name], False)  # type: ignore[arg-type]
    os.set_blocking(wake_writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    call("prctl", "become a subreaper", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def follow(order: dict[str, object], pid: int, complaint: str) -> None:
    """Report how the child ``pid`` started and ended, until its whole tree is gone."""
    report: int = order["report"]  # type: ignore[assignment]
    line = f"failed {complaint}" if complaint else f"started {pid}"
    try:
        os.write(report, line.replace("\n", " ").encode() + b"\n")
        os.write(order["wake_writer"], b"\0")  # type: ignore[arg-type]
        keep(pid, report, order["lifeline"], order["wake"])  # type: ignore[arg-type]
    except BrokenPipeError:  # samestep is gone, and with it the reader of the report
        kill_descendants()


def main() -> None:
    """Carry out the order given as the only argument."""
    order = json.loads(sys.argv[1])
    prepare(order)
    follow(order, *launch(order))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"samestep keeper: {error.strerror or error} ({errno.errorcode.get(error.errno or 0, '?')})")
