"""The command line of an attempt: placeholders and restarts."""

from __future__ import annotations

import dataclasses
import re
import shlex
import shutil
from typing import TYPE_CHECKING

from samestep.contract.redaction import redacted
from samestep.drill.options import DEFAULT_MODELS
from samestep.errors import UsageError

if TYPE_CHECKING:
    from samestep.drill.options import DrillOptions

OUT = "{out}"
CHECKPOINT = "{checkpoint}"
_OBJECT_STORE = re.compile(r"^(s3|s3a|gs|gcs|az|abfs|abfss|hf|http|https|r2|oci)://")


def check_command(options: DrillOptions) -> None:
    """Refuse a command that cannot be drilled.

    Raises:
        UsageError: it is empty, cannot be found, or does not say where it writes.
    """
    if not options.command:
        raise UsageError(
            "no training command was given", hint="samestep drill -- python train.py --out {out}"
        )
    for text in (*options.command, options.durable):
        if _OBJECT_STORE.match(text.split("=")[-1]) and (OUT in text or text == options.durable):
            raise UsageError(
                f"{text}: a durable folder on an object store cannot be drilled yet",
                hint="drill with a local folder: {out} is replaced by one",
            )
    program = options.command[0]
    if OUT not in program and shutil.which(program) is None and not (options.project / program).exists():
        raise UsageError(f"command not found: {program}", hint="is it installed, and on PATH?")
    if not options.durable and not any(OUT in word for word in options.command):
        raise UsageError(
            "the command does not say where it writes its checkpoints",
            hint="put {out} where its output folder goes, or name a fixed folder of the project with --durable PATH",
        )


def start_command(options: DrillOptions, out: str) -> list[str]:
    """Return the command of a first start, ``{out}`` replaced by ``out``."""
    return [word.replace(OUT, out) for word in options.command]


def restart_command(options: DrillOptions, out: str, checkpoint: str) -> list[str]:
    """Return the command of a restart.

    ``--resume-with`` is a full command, or, when its first word is an option, an addition to the first command.
    ``{checkpoint}`` is replaced by the newest checkpoint's path; without one the run is started as at first.
    """
    again = options.resume_with
    if not again or (not checkpoint and any(CHECKPOINT in word for word in again)):
        words = options.command
    elif again[0].startswith("-"):
        words = [*options.command, *again]
    else:
        words = again
    return [word.replace(OUT, out).replace(CHECKPOINT, checkpoint) for word in words]


def replay_command(options: DrillOptions, name: str) -> str:
    """Return the command that repeats the scenario ``name`` with the same settings; secrets in it are hidden."""
    words = ["samestep", "drill", "--replay", name]
    usual = {f.name: f.default for f in dataclasses.fields(options)}
    for field, flag in _FLAGS.items():
        value = getattr(options, field)
        if value != usual[field]:
            words += (
                [flag] if value is True else [flag, f"{value:g}" if isinstance(value, float) else str(value)]
            )
    words += (
        ["--resume-with", " ".join(shell_word(w) for w in redacted(options.resume_with))]
        if options.resume_with
        else []
    )
    words += [word for also in options.also for word in ("--also", shlex.join(redacted(also)))]
    words += [word for path in options.inputs for word in ("--input", str(path))]
    if options.models != list(DEFAULT_MODELS):
        words += [word for model in options.models for word in ("--models", model)]
    words += [word for slug in sorted(options.silence) for word in ("--silence", slug)]
    return " ".join(shell_word(word) for word in [*words, "--", *redacted(options.command)])


_FLAGS = {
    "durable": "--durable",
    "steps": "--steps",
    "verify_steps": "--verify-steps",
    "max_states": "--max-states",
    "storage": "--storage",
    "grace_seconds": "--grace",
    "timeout_seconds": "--timeout",
    "allow_network": "--allow-network",
    "fresh": "--fresh",
    "strict": "--strict",
}


def shell_word(word: str) -> str:
    """Quote ``word`` for a shell, but leave the placeholders readable."""
    return word if word and all(c.isalnum() or c in "{}_-./=:,@%+" for c in word) else shlex.quote(word)
