"""Commands run under the recorder, each in a folder of its own."""

from __future__ import annotations

import os
import shutil
import sys
from typing import TYPE_CHECKING

import pytest

from samestep.crash.operations import Kind
from samestep.crash.recorder.proof import prove
from samestep.crash.recorder.running import record

if TYPE_CHECKING:
    from pathlib import Path

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


class Bench:
    """A folder `out` that commands work in while they are recorded.

    Attributes:
        out: the watched folder.
        log: output of the last command.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.log = folder / "log"
        self._count = 0
        self.base: Path | None = None

    def keep_base(self):
        """Remember what is in the watched folder before a recording."""
        self.base = self.folder / "base"
        shutil.copytree(self.out, self.base, symlinks=True)

    def run(self, argv, *, env=None, timeout=120.0, exit_code=0, **options):
        """Record a command; it has to end with ``exit_code`` and its recording has to be exact."""
        recording = self.start(argv, env=env, timeout=timeout, **options)
        assert recording.header.exit_code == exit_code, self.log.read_text()
        assert recording.header.complete, recording.header.notes
        assert prove(recording, self.out, self.base) == []
        return recording

    def start(self, argv, *, env=None, timeout=120.0, **options):
        """Record a command, whatever becomes of it."""
        self._count += 1
        return record(
            argv,
            roots=options.pop("roots", [self.out]),
            folder=self.folder / f"recording-{self._count}",
            cwd=self.folder,
            env={**ENVIRONMENT, **(env or {})},
            log_path=self.log,
            timeout=timeout,
            **options,
        )

    def python(self, script, **options):
        """Record a Python script, given as text."""
        return self.run([sys.executable, "-c", script], **options)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.fixture
def told():
    """Operations as short lines without closings: kind, file name, and where it is a write its size."""

    def tell(recording, *, root=None):
        top = (root or recording.header.roots[0]) + "/"
        lines = []
        for operation in recording.operations:
            if operation.kind is Kind.CLOSE:
                continue
            names = [part.removeprefix(top) for part in (operation.path, operation.target) if part]
            detail = (
                [str(operation.size)] if operation.kind in {Kind.WRITE, Kind.TRUNCATE, Kind.STORED} else []
            )
            error = [f"!{os.strerror(operation.errno)}"] if operation.errno else []
            lines.append(" ".join([operation.kind, *names, *detail, *error]))
        return lines

    return tell
