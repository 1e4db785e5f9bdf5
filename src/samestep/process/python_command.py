"""Commands that start a Python program: which interpreter, and what it runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_INTERPRETER = re.compile(r"^python[0-9.]*$")
_ALONE = frozenset({"-u", "-B", "-O", "-OO"})
_WITH_VALUE = frozenset({"-W", "-X"})


@dataclass(frozen=True)
class PythonCommand:
    """A command ``python [flags] script.py [arguments]`` or ``python [flags] -m module [arguments]``.

    Attributes:
        interpreter: its first word.
        flags: the interpreter's own options.
        module: name after ``-m``; empty for a script.
        arguments: ``sys.argv`` of the program: the script's path (or the module's name), then its arguments.
    """

    interpreter: str
    flags: tuple[str, ...]
    module: str
    arguments: tuple[str, ...]

    @classmethod
    def parse(cls, argv: Sequence[str]) -> PythonCommand | None:
        """Take a command apart; None when it is no plain start of a Python program (a launcher, ``-c``, ``-I``)."""
        if not argv or not _INTERPRETER.match(argv[0].rpartition("/")[2]):
            return None
        flags: list[str] = []
        words = list(argv[1:])
        while words and words[0] in _ALONE | _WITH_VALUE:
            count = 2 if words[0] in _WITH_VALUE else 1
            flags += words[:count]
            words = words[count:]
        if len(words) >= 2 and words[0] == "-m" and not _launches(words[1]):
            return cls(argv[0], tuple(flags), words[1], tuple(words[1:]))
        if words and words[0].endswith(".py"):
            return cls(argv[0], tuple(flags), "", tuple(words))
        return None


def _launches(module: str) -> bool:
    """Whether a module starts the training in processes of its own."""
    return module.startswith(("torch.distributed", "accelerate.", "deepspeed.", "lightning.fabric.cli"))
