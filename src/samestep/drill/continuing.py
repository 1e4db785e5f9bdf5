"""Going on with a drill that was interrupted: results that are there already need not be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import xxhash

from samestep.contract import Outcome
from samestep.contract.redaction import redacted
from samestep.drill.result import DrillResult
from samestep.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from samestep.drill.result import Control, ScenarioResult


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


def reusable(earlier: DrillResult, control: Control) -> dict[str, ScenarioResult]:
    """Return the results that still hold, by name: the control left the same content, and something was found out."""
    before = earlier.control
    if before is None or not control.bit_equal or before.content != control.content:
        return {}
    return {
        result.name: msgspec.structs.replace(result, log=f"../{earlier.run_id}/{result.log}")
        for result in earlier.scenarios
        if result.observed.outcome is not Outcome.INCONCLUSIVE
    }


def content_digest(tensors: Mapping[str, str]) -> str:
    """Return one digest for the tensors that a run has left, by path."""
    whole = xxhash.xxh3_128()
    for path, digest in sorted(tensors.items()):
        whole.update(f"{path}\0{digest}\0".encode())
    return f"xxh3-128:{whole.hexdigest()}"
