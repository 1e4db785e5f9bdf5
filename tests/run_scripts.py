"""Training scripts run as a user runs them, as ``__main__``, in processes forked from one with torch loaded."""

from __future__ import annotations

import os
import runpy
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

import torch

import forks

TIMEOUT_SECONDS = 120


class Ran(NamedTuple):
    """What came of a script.

    Attributes:
        exit_code: of its process, negative for a signal.
        text: what it wrote to stdout and stderr.
    """

    exit_code: int
    text: str


def run_script(source, folder, *arguments, path=(), environment=None):
    """Run a script in a folder.

    Args:
        source: its text, or the file that it is.
        folder: it works there.
        arguments: of its command line.
        path: folders that it can import from, too.
        environment: variables to set.
    """
    script, log = folder / "script.py", folder / "log"
    if isinstance(source, Path):
        script = source
    else:
        script.write_text(textwrap.dedent(source), encoding="utf-8")
    given = (script, log, [str(one) for one in arguments], [str(one) for one in path], environment or {})
    process = forks.process(_run, *given)
    process.start()
    process.join(TIMEOUT_SECONDS)
    if process.is_alive():
        process.kill()
        raise TimeoutError(log.read_text(encoding="utf-8"))
    return Ran(process.exitcode, log.read_text(encoding="utf-8"))


def _run(script, log, arguments, path, environment):
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    sys.stdout.reconfigure(line_buffering=True)
    os.environ |= {"OMP_NUM_THREADS": "1", **environment}
    torch.set_num_threads(1)  # it was loaded before
    os.chdir(log.parent)
    sys.argv = [str(script), *arguments]
    sys.path[:0] = path
    runpy.run_path(str(script), run_name="__main__")
