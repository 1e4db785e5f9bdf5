"""Going on with a drill that was interrupted: results that are there already need not be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import xxhash

from samestep.contract import Outcome
from samestep.contract.redaction import redacted
from samestep.drill.result import DrillResult
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from samestep.drill.result import ScenarioResult

_HOW_TO_WORK = frozenset({"jobs", "work_dir", "max_states", "only", "timeout_seconds", "fresh"})


def load_interrupted(run_folder: Path, command: list[str]) -> DrillResult:
    """Return what an interrupted drill of ``command`` has left.

    Raises:
        UsageError: there is none, it came to its end, or it was a drill of another command.
    """
    try:
        earlier = msgspec.json.decode((run_folder / "drill.json").read_bytes(), type=DrillResult)
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(
            f"{run_folder} holds no drill to go on with ({error})", hint="run the drill without --continue"
        ) from error
    if not earlier.interrupted:
        raise UsageError("the latest drill was not interrupted: there is nothing to go on with")
    if earlier.command != redacted(command):
        raise UsageError(
            "the latest drill was of another command", hint=f"that was: {' '.join(earlier.command)}"
        )
    return earlier


def reusable(earlier: DrillResult, now: DrillResult) -> dict[str, ScenarioResult]:
    """Return the results that still hold, by name.

    Code, settings and versions must be the same, the controls must have left the same content, and something must
    have been found out.
    """
    before, control = earlier.control, now.control
    if before is None or control is None or not control.bit_equal:
        return {}
    if (before.content, earlier.fingerprint) != (control.content, now.fingerprint):
        return {}
    return {
        result.name: msgspec.structs.replace(result, log=f"../{earlier.run_id}/{result.log}")
        for result in earlier.scenarios
        if result.observed.outcome is not Outcome.INCONCLUSIVE
    }


def fingerprint(code: str, facts: Mapping[str, Any]) -> str:
    """Return a digest of what a result rests on besides the control.

    Args:
        code: digest of the files that machines get.
        facts: the provenance; settings that only say how to work (jobs, folders, how many states) do not count.
    """
    settings = {name: value for name, value in facts.get("settings", {}).items() if name not in _HOW_TO_WORK}
    counted = {
        name: facts.get(name) for name in ("samestep_python", "interpreter", "versions", "environment")
    }
    whole = msgspec.json.encode([code, settings, counted], order="deterministic")
    return f"xxh3-128:{xxhash.xxh3_128_hexdigest(whole)}"


def carry_over(earlier: DrillResult, now: DrillResult) -> None:
    """Keep what the interrupted drill had found when this one was interrupted before it could look at it."""
    known = {result.name for result in now.scenarios}
    if now.control is None:
        now.control, now.criterion, now.fingerprint = earlier.control, earlier.criterion, earlier.fingerprint
        now.crash = earlier.crash
    now.scenarios += [result for result in reusable(earlier, now).values() if result.name not in known]


def content_digest(tensors: Mapping[str, str]) -> str:
    """Return one digest for the tensors that a run has left, by path."""
    whole = xxhash.xxh3_128()
    for path, digest in sorted(tensors.items()):
        whole.update(f"{path}\0{digest}\0".encode())
    return f"xxh3-128:{whole.hexdigest()}"
