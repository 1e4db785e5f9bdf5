"""A command with everything it starts: started, stopped, continued and killed as one.

torch elastic starts its workers in new sessions, data loaders fork, daemons detach: a process group misses
them. The tree is found through its keeper (a subreaper, so orphans stay below it) and through a mark in the
environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

import psutil

from samestep.errors import ForkError, MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from samestep.process.preloaded import ForkedKeeper, Preloaded

TREE_VARIABLE = "SAMESTEP_TREE"
"""Environment variable that marks every process of a tree."""

KEEPER = Path(__file__).with_name("keeper.py")
START_SECONDS = 30.0
PAUSE_SECONDS = 0.002

_live: set[ProcessTree] = set()


class ProcessTree:
    """One command and all its descendants; use :meth:`start`, preferably in a ``with`` block.

    Attributes:
        mark: value of ``SAMESTEP_TREE`` in the environment of its processes.
        root_pid: pid of the command itself, or of its supervisor.
        log_path: where its standard output and error go.
    """

    def __init__(
        self,
        keeper: subprocess.Popen[bytes] | ForkedKeeper,
        mark: str,
        report: int,
        lifeline: int,
        log_path: Path,
    ) -> None:
        self.mark = mark
        self.root_pid = 0
        self.log_path = log_path
        self._keeper = keeper
        self._report = report
        self._lifeline = lifeline
        self._unread = b""
        self._exit_code: int | None = None
        self._complaint = ""
        self._halted: set[psutil.Process] = set()
        self._supervised = False
        self._lock = threading.RLock()

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        cwd: Path,
        log_path: Path,
        enter: Sequence[str] = (),
        preloaded: Preloaded | None = None,
        supervisor: Sequence[str] = (),
    ) -> ProcessTree:
        """Start a command in a session of its own; output and errors are appended to ``log_path``.

        Args:
            argv: the command and its arguments.
            env: its whole environment; the mark of the tree is added.
            cwd: its working directory, as seen on its machine.
            log_path: file for standard output and error; standard input is empty.
            enter: ``Machine.enter`` of the machine it runs on; empty: the surroundings of this process.
            preloaded: process to fork the command from; None: start it in a fresh process.
            supervisor: prefix of the command that runs it as its child, answers its system calls and ends as it
                does. It is not frozen, killed last, and passes signals on.

        Raises:
            ForkError: the preloaded process is gone.
            MachineError: the command does not exist, or its machine could not be entered.
        """
        mark = uuid.uuid4().hex
        report, report_writer = os.pipe()
        lifeline_reader, lifeline = os.pipe()
        order = {
            "argv": [*supervisor, *argv],
            "cwd": str(cwd),
            "machine": json.loads(enter[0]) if enter else None,
        }
        keeper: subprocess.Popen[bytes] | ForkedKeeper
        try:
            with log_path.open("ab") as log:
                pipes, whole_env = (report_writer, lifeline_reader), {**env, TREE_VARIABLE: mark}
                if preloaded is None:
                    keeper = _start_keeper(order, whole_env, log, pipes)
                else:
                    keeper = preloaded.fork(order, whole_env, [*pipes, log.fileno()])
        except (OSError, MachineError) as error:
            os.close(report)
            os.close(lifeline)
            if isinstance(error, ForkError):  # whoever asked for a fork may do without
                raise
            raise MachineError(
                f"{argv[0]!r} could not be started with its log at {log_path}: {error}"
            ) from error
        finally:
            os.close(report_writer)
            os.close(lifeline_reader)
        tree = cls(keeper, mark, report, lifeline, log_path)
        tree._supervised = bool(supervisor)
        _live.add(tree)
        try:
            tree._await_start(argv, cwd)
        except BaseException:
            tree._release()
            raise
        return tree

    def _await_start(self, argv: Sequence[str], cwd: Path) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not (self.root_pid or self._complaint) and self._listen(deadline - time.monotonic()):
            pass
        if self._complaint or not self.root_pid:
            reason = self._complaint or f"no answer from {KEEPER.name}; see {self.log_path}"
            hint = f"run it by hand in {cwd} first: {' '.join(argv)}"
            raise MachineError(f"{argv[0]!r} could not be started: {reason}", hint=hint)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def poll(self) -> int | None:
        """Exit code of the command (128 + n when signal n ended it), or None while it runs.

        Processes that it left behind may still be alive, see :meth:`members`.
        """
        while self._exit_code is None and self._listen(0):
            pass
        return self._exit_code

    def wait(self, timeout: float) -> int | None:
        """Wait up to ``timeout`` seconds for the command to end; its exit code, or None when it runs on."""
        deadline = time.monotonic() + timeout
        while self.poll() is None and self._listen(deadline - time.monotonic()):
            pass
        return self._exit_code

    def wait_gone(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until no process of the tree is left; whether that happened."""
        try:
            self._keeper.wait(max(timeout, 0))
        except subprocess.TimeoutExpired:
            return False
        self.poll()
        return not self.members()

    def members(self) -> list[psutil.Process]:
        """All living processes of the tree, wherever they are now."""
        found = {process for process in _below(self._keeper.pid) if not _is_dead(process.pid)}
        marked = (process for process in _marked(self.mark) if process.pid != self._keeper.pid)
        found.update(process for process in marked if not _is_dead(process.pid))
        return sorted(found, key=lambda process: process.pid)

    def freeze(self, timeout: float = 30.0) -> None:
        """Stop every thread of every process (SIGSTOP), until nothing in the tree runs any more.

        A supervisor goes on: what waits for an answer of its can stop only when it has got it.

        Raises:
            MachineError: something still ran after ``timeout`` seconds.
        """
        self._freeze(timeout)

    def _freeze(self, timeout: float, *, waiting_counts: bool = False) -> None:
        """Stop everything; with ``waiting_counts``, what waits in the kernel has stopped once it was told to."""
        deadline = time.monotonic() + timeout
        quiet_passes = 0
        # One pass can miss a child whose parent ended while the process table was being read, hence two.
        while quiet_passes < 2:
            running = [
                process
                for process in self._commanded()
                if not _is_stopped(process.pid, "D" if waiting_counts and process in self._halted else "")
            ]
            if running and time.monotonic() > deadline:
                raise MachineError(f"{_names(running)} did not stop within {timeout:g} s")
            for process in running:
                if process in self._halted:
                    self._let_children_start(process)
            self._halted.update(process for process in running if _signal(process, signal.SIGSTOP))
            quiet_passes = 0 if running else quiet_passes + 1
            time.sleep(PAUSE_SECONDS if running else 0)

    def _let_children_start(self, process: psutil.Process) -> None:
        """Free a process from vfork's wait: it cannot stop before its child has become another program."""
        if "D" in _thread_states(process.pid):
            with contextlib.suppress(psutil.Error):
                for child in self._halted.intersection(process.children()):
                    _signal(child, signal.SIGCONT)

    def thaw(self) -> None:
        """Continue what :meth:`freeze` stopped; a process that had stopped by itself stays so."""
        for process in self._halted:
            _signal(process, signal.SIGCONT)
        self._halted.clear()

    def terminate(self, signum: int = signal.SIGTERM, *, everyone: bool = False) -> None:
        """Send a notice to the command, or to ``everyone`` in the tree as a machine that shuts down does."""
        for process in self._commanded() if everyone else self.members():
            if everyone or process.pid == self.root_pid:
                _signal(process, signum)

    def _commanded(self) -> list[psutil.Process]:
        """All living processes but a supervisor."""
        return [process for process in self.members() if not self._supervised or process.pid != self.root_pid]

    def kill(self, timeout: float = 30.0) -> None:
        """Stop the whole tree, then SIGKILL all of it: nothing in it reacts to the end of something else.

        Safe to call again, and after the command has ended by itself.

        Raises:
            MachineError: something outlived it for ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        with contextlib.suppress(MachineError):
            # Under a supervisor that has stopped answering, what waits for it never leaves the kernel.
            self._freeze(timeout / 2, waiting_counts=self._supervised)
        while left := self._commanded() or self.members():
            if time.monotonic() > deadline:
                raise MachineError(f"{_names(left)} could not be killed within {timeout:g} s")
            for process in left:
                _signal(process, signal.SIGKILL)
            time.sleep(PAUSE_SECONDS)
        self._halted.clear()
        self._release()

    def _listen(self, timeout: float) -> bool:
        """Take in what the keeper reports; False when nothing came within ``timeout`` seconds."""
        with self._lock:
            if self._report < 0 or not select.select([self._report], [], [], max(timeout, 0))[0]:
                return False
            received = os.read(self._report, 4096)
            *lines, self._unread = (self._unread + received).split(b"\n")
            for line in lines:
                self._note(*line.decode().split(" ", 1))
            if not received:
                self._close_report()
            return bool(received)

    def _note(self, word: str, text: str) -> None:
        if word == "started":
            self.root_pid = int(text)
        elif word == "exited":
            self._exit_code = int(text)
        else:
            self._complaint = text

    def _close_report(self) -> None:
        os.close(self._report)
        self._report = -1
        if self._exit_code is None:  # the keeper itself was killed
            self._exit_code = 128 + signal.SIGKILL

    def _release(self) -> None:
        """Let the keeper end (it kills what it still has) and collect it."""
        with self._lock:
            if self._lifeline >= 0:
                os.close(self._lifeline)
                self._lifeline = -1
            try:
                self._keeper.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                self._keeper.kill()
                self._keeper.wait()
            while self._listen(1.0):
                pass
            _live.discard(self)


def _start_keeper(
    order: dict[str, Any], env: dict[str, str], log: IO[bytes], pipes: tuple[int, int]
) -> subprocess.Popen[bytes]:
    report, lifeline = pipes
    return subprocess.Popen(
        [
            sys.executable,
            "-I",
            "-S",
            str(KEEPER),
            json.dumps(order | {"report": report, "lifeline": lifeline}),
        ],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
        pass_fds=pipes,
    )


def kill_all_trees() -> None:
    """Kill every tree that this process has started and not ended; for the way out after a signal."""
    for tree in list(_live):
        tree.kill()


def _below(pid: int) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _marked(mark: str) -> list[psutil.Process]:
    """Processes with the mark in the environment they were started with."""
    wanted = f"{TREE_VARIABLE}={mark}".encode()
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError, psutil.NoSuchProcess):
            if _has_entry(pid, wanted):
                process = psutil.Process(pid)
                found += [process] if _has_entry(pid, wanted) else []  # the pid was not reused in between
    return found


def _has_entry(pid: int, entry: bytes) -> bool:
    return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")


def _thread_states(pid: int) -> set[str]:
    """State letters of all threads, as in proc(5); empty when the process is gone."""
    states = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                states.add((task / "stat").read_text(errors="replace").rpartition(")")[2].split()[0])
    return states


def _is_dead(pid: int) -> bool:
    return _thread_states(pid) <= set("ZXx")


def _is_stopped(pid: int, or_in: str = "") -> bool:
    return _thread_states(pid) <= {*"TtZXx", *or_in}


def _signal(process: psutil.Process, signum: int) -> bool:
    """Signal exactly this process (psutil checks pid and start time); False when it is gone or not ours."""
    try:
        process.send_signal(signum)
    except psutil.Error:
        return False
    return True


def _names(processes: list[psutil.Process]) -> str:
    shown = ", ".join(f"{process.pid}" for process in processes[:8])
    return f"process {shown}" if len(processes) == 1 else f"{len(processes)} processes ({shown})"
