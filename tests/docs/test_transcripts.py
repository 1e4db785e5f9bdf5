"""What a page shows as the output of a command is what the command prints."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "keep-bundles.md"

_SEQUENCE = re.compile(r"<!-- sequence -->\n```console\n(.*?)```", re.DOTALL)
_VARYING = (
    (re.compile(r"\b([rba])-\d{8}t\d{9}-[0-9a-f]{10}"), r"\1-ID"),
    (re.compile(r"^(  expects +)\S.*"), r"\1VERSIONS"),
    (re.compile(r" at /\S*/bundles/"), " at ROOT/bundles/"),
    (re.compile(r"\d+(\.\d+)? ([KM]iB|bytes)"), "SIZE"),
    (re.compile(r"in \d+\.\d s"), "in TIME"),
)


def masked(lines):
    for pattern, word in _VARYING:
        lines = [pattern.sub(word, line) for line in lines]
    return lines


def transcript():
    """Return every command of the page's sequence with the lines that are shown below it."""
    found = []
    for line in "".join(_SEQUENCE.findall(PAGE.read_text(encoding="utf-8"))).splitlines():
        if line.startswith("$ "):
            found.append((shlex.split(line[2:]), []))
        else:
            found[-1][1].append(line)
    return found


def ran(words, folder):
    words = ["-m", *words] if words[0] == "samestep" else words[1:]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_the_output_shown_of_bundle_verbs_is_the_real_one(tmp_path):
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = transcript()
    last = max(index for index, (_, shown) in enumerate(commands) if shown)
    compared = 0
    for words, shown in commands[: last + 1]:
        out, err = (masked(lines) for lines in ran(words, tmp_path))
        if shown:
            compared += 1
            assert sorted(masked(shown)) == sorted(out + err), shlex.join(words)
    assert compared == 2
