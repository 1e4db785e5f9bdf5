"""Import a run's libraries once, then fork one attempt after another from this process.

A stand-alone script (standard library only, Python 3.10), run by the interpreter of the training command. Nothing of
the run is in it: no module of the project, no state, no seed. For every request it forks a keeper (see ``keeper.py``),
which forks the process that enters the attempt's machine and becomes the training script, as ``python script.py`` or
``python -m module`` would have made it, without the time that imports take.

Its argument names a file with the socket to connect to and the modules to import. It says how the imports went, or
why it refuses, and ends when the socket closes.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import gc
import importlib
import importlib.util
import io
import json
import os
import random
import runpy
import signal
import socket
import struct
import sys
import threading
from importlib.machinery import SourceFileLoader
from typing import Any, NoReturn

LENGTH = struct.Struct("!Q")
DESCRIPTORS = ("report", "lifeline", "log")


def load_file(name: str, path: str) -> Any:
    """Import the file at ``path`` as a module that nobody else finds."""
    loader = SourceFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    loader.exec_module(module)
    return module


def import_libraries(names: list[str]) -> int:
    """Import what can be imported; returns how many could not."""
    failed = 0
    for name in names:
        try:
            importlib.import_module(name)
        except (Exception, SystemExit):  # noqa: BLE001 - what cannot be imported alone is imported by the script later
            failed += 1
    return failed


def reason_to_refuse(local: list[str]) -> str:
    """Say why forks of this process would not be as good as fresh ones; empty: they are.

    Args:
        local: top-level names of modules that belong to the project.
    """
    loaded = {name.partition(".")[0] for name in sys.modules}
    shadowed = sorted(loaded.intersection(local))
    if shadowed:
        return f"the project's own module {shadowed[0]} has the name of a library's"
    if threading.active_count() > 1:
        others = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
        return f"importing the libraries started the thread {others[0]}"
    return ""


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """Wait for a request: its length with three descriptors, then JSON; None when the other end has closed."""
    head, descriptors, _, _ = socket.recv_fds(channel, LENGTH.size, len(DESCRIPTORS))
    if not head:
        return None
    wanted = LENGTH.unpack(head)[0]
    text = b""
    while len(text) < wanted and (part := channel.recv(wanted - len(text))):
        text += part
    request: dict[str, Any] = json.loads(text)
    return {**request, **dict(zip(DESCRIPTORS, descriptors, strict=True))}


def serve(channel: socket.socket, keeper: Any) -> dict[str, Any] | None:
    """Fork a keeper for every request; returns the request in the process that is to become the script, else None."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
    gc.collect()
    gc.freeze()  # else a collection in a fork would touch, and so copy, every page of the libraries' objects
    while True:
        request = receive(channel)
        if request is None:
            return None
        pid = os.fork()
        if pid == 0:
            channel.close()
            return keep(request, keeper)
        for name in DESCRIPTORS:
            os.close(request[name])
        channel.sendall(LENGTH.pack(pid))


def keep(request: dict[str, Any], keeper: Any) -> dict[str, Any]:
    """Be the keeper of one attempt; returns only in its child, on its machine, with its output going to its log."""
    os.setsid()
    keeper.prepare(request)
    reader, complaint = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            keeper.settle_in(request)
        except OSError as error:
            os.write(complaint, (error.strerror or str(error)).encode())
            os._exit(127)
        take_over(request, [reader, complaint])
        return request
    for descriptor in (complaint, request["log"]):
        os.close(descriptor)
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    keeper.follow(request, pid, text)
    os._exit(0)


def take_over(request: dict[str, Any], descriptors: list[int]) -> None:
    """Put signals, output, environment and random numbers where a process that has just started has them."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    for standard in (1, 2):
        os.dup2(request["log"], standard)
    inherited = [request[name] for name in (*DESCRIPTORS, "wake", "wake_writer")]
    for descriptor in (*descriptors, *inherited):
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["env"])
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.seed()


def become_script(request: dict[str, Any]) -> None:
    """Run the script or module as the main program."""
    globals()["__name__"] = (
        "_samestep.preload"  # the probe looks at what the script's frames hold, and not at these
    )
    sys.argv = list(request["arguments"])
    sys.orig_argv = list(request["argv"])
    if request["prelude"]:
        path, function = request["prelude"]
        getattr(load_file("_samestep_prelude", path), function)()
    main = sys.modules["__main__"] = type(sys)("__main__")
    main.__builtins__ = builtins  # type: ignore[attr-defined]
    if "__annotations__" in globals():
        main.__annotations__ = {}
    if request["module"]:
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as the interpreter does
        run = runpy._run_module_as_main  # type: ignore[attr-defined]  # noqa: SLF001 - what python -m calls
        run_to_its_end(run, request["module"])
    else:
        path = os.path.abspath(sys.argv[0])  # noqa: PTH100 - links stay as named
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120
        vars(main).update(__file__=path, __cached__=None)
        main.__loader__ = SourceFileLoader("__main__", path)
        run_to_its_end(run_file, path, vars(main))


def run_file(path: str, names: dict[str, Any]) -> None:
    """Execute the file in the namespace ``names``."""
    with open(path, "rb") as file:  # noqa: PTH123
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, names)  # noqa: S102 - the user's own training script


def run_to_its_end(run: Any, *arguments: Any) -> NoReturn:
    """Call ``run`` and end the process as the interpreter would, except that it does not take its modules apart.

    Freeing what the libraries made touches, and so copies, all that the fork shares with its parent; of a short
    restart that was most of the time.
    """
    code: Any = 0
    try:
        run(*arguments)
    except SystemExit as error:
        code = error.code
    except KeyboardInterrupt as error:
        tell(error)
        leave(128 + signal.SIGINT, by=signal.SIGINT)
    except BaseException as error:  # noqa: BLE001 - it is told, and becomes the exit code
        tell(error)
        code = 1
    leave(code)


def tell(error: BaseException) -> None:
    """Print an exception as the interpreter does, without the frames of this file."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in {__file__, runpy.__file__}:
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def leave(code: Any, *, by: int = 0) -> NoReturn:
    """Wait for threads, call what is registered for the end, flush, and be gone.

    Args:
        code: argument of ``SystemExit``.
        by: signal to end by, as the interpreter does after Ctrl-C; 0: none.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - what the interpreter calls first
    atexit._run_exitfuncs()  # noqa: SLF001 - what it calls next
    if not isinstance(code, int | None):
        sys.stderr.write(f"{code}\n")
    # what the script left open is written out when the interpreter frees it; the parent's own files are frozen
    for thing in (sys.stdout, sys.stderr, *gc.get_objects()):
        if issubclass(type(thing), io.IOBase):
            with contextlib.suppress(Exception):
                thing.flush()
    if by:
        signal.signal(by, signal.SIG_DFL)
        os.kill(os.getpid(), by)
    os._exit(code & 0xFF if isinstance(code, int) else int(code is not None))


def main() -> dict[str, Any] | None:
    """Import, say how it went, serve; returns the request in a process that is to become the script."""
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        order = json.load(file)
    channel = socket.socket(socket.AF_UNIX)
    channel.connect(order["socket"])
    sys.path[:] = [entry for entry in sys.path if entry != os.path.dirname(os.path.abspath(__file__))]  # noqa: PTH100, PTH120
    failed = import_libraries(order["modules"])
    for stream in (
        sys.stdout,
        sys.stderr,
    ):  # what a library printed is not for every fork to write out once more
        with contextlib.suppress(Exception):
            stream.flush()
    answer = {"refused": reason_to_refuse(order["local"]), "failed": failed}
    text = json.dumps(answer).encode()
    channel.sendall(LENGTH.pack(len(text)) + text)
    with contextlib.suppress(ConnectionError):
        return serve(channel, load_file("_samestep_keeper", order["keeper"]))
    return None


if __name__ == "__main__":
    accepted = main()
    if accepted is not None:
        become_script(accepted)
