"""Every error samestep raises on purpose, and the exit codes of its commands.

SamestepError
├── UsageError        what was asked for cannot be done as asked
├── ConfigError       a setting is unknown or has a value that cannot be used
├── TraceError        a trace file cannot be read
├── CheckpointError   a path holds nothing that inspect can read
├── MachineError      a machine for an attempt could not be prepared
│   └── ForkError     the process that attempts are forked from is gone
└── DrillError        the drill cannot be carried out
"""

from __future__ import annotations

import enum
from typing import ClassVar


class ExitCode(enum.IntEnum):
    """What the exit status of a samestep command means."""

    HOLDS = 0  #: everything that was checked holds
    DEFECT = 1  #: at least one defect was found
    USAGE = 2  #: the command line or the configuration is wrong
    INTERNAL = 3  #: samestep itself failed; please report it
    INCONCLUSIVE = 4  #: the measurement cannot tell
    NOTHING_RAN = 5  #: nothing was checked
    INTERRUPTED = 130  #: ended by Ctrl-C (SIGINT)
    TERMINATED = 143  #: ended by SIGTERM


class SamestepError(Exception):
    """Something a user can act on.

    Args:
        message: what happened, where, and what was expected.
        hint: what to do next, if anything is known to help.
    """

    slug: ClassVar[str] = "error"
    exit_code: ClassVar[ExitCode] = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SamestepError):
    """What was asked for cannot be done as asked."""

    slug = "usage"


class ConfigError(SamestepError):
    """A setting is unknown or has a value that cannot be used."""

    slug = "config"


class TraceError(SamestepError):
    """A trace file cannot be read."""

    slug = "trace"


class CheckpointError(SamestepError):
    """A path holds nothing that can be inspected as a checkpoint."""

    slug = "checkpoint"


class MachineError(SamestepError):
    """A machine for an attempt could not be prepared."""

    slug = "machine"


class ForkError(MachineError):
    """The process that attempts are forked from is gone, or cannot start this command."""

    slug = "fork"


class DrillError(SamestepError):
    """The drill cannot be carried out; ``exit_code`` says whether anything ran."""

    slug = "drill"
    exit_code = ExitCode.NOTHING_RAN
