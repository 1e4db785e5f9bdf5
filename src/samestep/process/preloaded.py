"""A process with a run's libraries in it, from which attempts are forked instead of started."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from samestep.errors import ForkError, MachineError
from samestep.process.preload import LENGTH
from samestep.process.python_command import PythonCommand
from samestep.process.tree import KEEPER, ProcessTree

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samestep.process.machine import Machine

PRELOAD = Path(__file__).with_name("preload.py")
IMPORT_SECONDS = 300.0


class ForkedKeeper:
    """The keeper of an attempt that another process has forked; the part of ``subprocess.Popen`` that trees need.

    Args:
        pid: its process.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._file = -1
        with contextlib.suppress(ProcessLookupError):
            self._file = os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its exit code is not known.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self._file >= 0:
            if not select.select([self._file], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("keeper", timeout or 0)
            os.close(self._file)
            self._file = -1
        return 0

    def kill(self) -> None:
        """End it at once."""
        if self._file >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._file, signal.SIGKILL)


class Preloaded:
    """A preloaded process; make one with `start`, preferably in a ``with`` block.

    Args:
        tree: its process tree.
        command: whose interpreter and flags it has.
        channel: connection to it.
        prelude: file and function that each attempt calls before its script; empty: none.
    """

    def __init__(
        self,
        tree: ProcessTree,
        command: PythonCommand,
        channel: socket.socket,
        prelude: tuple[str, str] | None,
    ) -> None:
        self._tree = tree
        self._command = command
        self._channel = channel
        self._prelude = prelude
        self._lock = threading.Lock()

    @classmethod
    def start(
        cls,
        command: PythonCommand,
        modules: Sequence[str],
        *,
        machine: Machine,
        env: Mapping[str, str],
        log_path: Path,
        local: Sequence[str] = (),
        prelude: tuple[str, str] | None = None,
    ) -> Self:
        """Start the process on a machine of its own and let it import.

        Args:
            command: whose interpreter and flags to use.
            modules: modules to import, in order.
            machine: where it lives.
            env: its environment: that of the attempts, without what starts the probe.
            log_path: file for its output.
            local: top-level names of the project's own modules, which must not be in it.
            prelude: file and function that each attempt calls before its script.

        Raises:
            MachineError: it could not be started, or forks of it would differ from fresh processes.
        """
        address = machine.site.base / "preload.sock"
        with socket.socket(socket.AF_UNIX) as listener:
            _bind(listener, address)
            listener.listen(1)
            listener.settimeout(IMPORT_SECONDS)
            order = {
                "socket": str(address),
                "keeper": str(KEEPER),
                "modules": list(modules),
                "local": list(local),
            }
            orders = machine.folder / "preload.json"
            orders.write_text(json.dumps(order), encoding="utf-8")
            argv = [command.interpreter, *command.flags, str(PRELOAD), str(orders)]
            tree = ProcessTree.start(
                argv, env=env, cwd=machine.seat_project, log_path=log_path, enter=machine.enter
            )
            try:
                channel = _connected(listener, tree)
                _check(_answer(channel))
            except BaseException:
                tree.kill()
                raise
            finally:
                address.unlink()
        return cls(tree, command, channel, prelude)

    def runs(self, argv: Sequence[str]) -> bool:
        """Say whether ``argv`` is a Python program for this interpreter with these flags."""
        command = PythonCommand.parse(argv)
        own = (self._command.interpreter, self._command.flags)
        return command is not None and (command.interpreter, command.flags) == own

    def fork(
        self, order: Mapping[str, Any], env: Mapping[str, str], descriptors: Sequence[int]
    ) -> ForkedKeeper:
        """Fork a keeper whose child becomes a Python program.

        Args:
            order: command line (one that `runs` accepts), working directory and machine, as for a keeper.
            env: whole environment of the attempt.
            descriptors: the keeper's ends of report and lifeline, and the log.

        Raises:
            ForkError: the process is gone.
        """
        command = PythonCommand.parse(order["argv"])
        if command is None:
            raise ForkError(f"{order['argv'][0]} is not started as a plain Python program")
        request = {
            **order,
            "arguments": list(command.arguments),
            "module": command.module,
            "env": dict(env),
            "prelude": self._prelude,
        }
        text = json.dumps(request).encode()
        try:
            with self._lock:
                socket.send_fds(self._channel, [LENGTH.pack(len(text))], list(descriptors))
                self._channel.sendall(text)
                return ForkedKeeper(LENGTH.unpack(_exactly(self._channel, LENGTH.size))[0])
        except (OSError, EOFError) as error:
            raise ForkError(
                f"the preloaded process is gone ({error}); see {self._tree.log_path}",
                hint="drill without it: --fresh",
            ) from error

    def close(self) -> None:
        """End it, and with it every attempt that it has forked and that still runs."""
        self._channel.close()
        self._tree.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bind(listener: socket.socket, address: Path) -> None:
    try:
        listener.bind(str(address))
    except OSError as error:
        raise MachineError(
            f"no socket can be made at {address}: {error}",
            hint="choose a shorter --work-dir, or drill with --fresh",
        ) from error


def _connected(listener: socket.socket, tree: ProcessTree) -> socket.socket:
    listener.settimeout(0.1)
    for _ in range(int(IMPORT_SECONDS / 0.1)):
        with contextlib.suppress(TimeoutError):
            channel, _ = listener.accept()
            channel.settimeout(IMPORT_SECONDS)
            return channel
        if tree.poll() is not None:
            break
    raise MachineError(f"the preloaded process did not come up; see {tree.log_path}")


def _answer(channel: socket.socket) -> dict[str, object]:
    try:
        length = LENGTH.unpack(_exactly(channel, LENGTH.size))[0]
        answer: dict[str, object] = json.loads(_exactly(channel, length))
    except (OSError, EOFError) as error:
        raise MachineError(f"the preloaded process ended while it imported libraries ({error})") from error
    return answer


def _check(answer: dict[str, object]) -> None:
    if answer["refused"]:
        raise MachineError(f"attempts cannot be forked from a preloaded process: {answer['refused']}")


def _exactly(channel: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = channel.recv(size - len(received))
        if not part:
            raise EOFError("it closed the connection")
        received += part
    return received
