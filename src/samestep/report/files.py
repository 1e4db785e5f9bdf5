"""Reading and writing the files of a drill."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
from msgspec.structs import replace

from samestep.contract.redaction import redacted, redacted_text
from samestep.drill.result import DRILL_SCHEMA, DrillResult
from samestep.errors import UsageError

from .stored import encoded, plain_values, read_result, write_atomically

RESULT_NAME = "drill.json"
STATE_FOLDER = Path(".samestep")
_RUN_FIRST = "run a drill first: samestep drill -- COMMAND"


def encode_result(result: DrillResult) -> bytes:
    """Return the JSON of a result, with the secrets in commands hidden; see ``stored.encoded``."""
    return encoded(without_secrets(result))


def without_secrets(result: DrillResult) -> DrillResult:
    """Return the result as it may be shown: with no token or password in its commands and titles."""
    return replace(
        result,
        command=redacted(result.command),
        resume_with=redacted(result.resume_with),
        scenarios=[
            replace(item, title=redacted_text(item.title), replay=redacted_text(item.replay))
            for item in result.scenarios
        ],
    )


def decode_result(data: bytes, source: str) -> DrillResult:
    """Read a result from its JSON.

    Args:
        data: the JSON.
        source: where it came from, for messages.

    Raises:
        UsageError: it is cut off, no drill result, or of another schema.
    """
    plain = plain_values(data, source, DRILL_SCHEMA, run_first=_RUN_FIRST)
    try:
        return without_secrets(msgspec.convert(_with_infinities(plain), DrillResult))
    except msgspec.ValidationError as error:
        raise UsageError(f"{source} is no {DRILL_SCHEMA} result: {error}") from error


def _with_infinities(plain: dict[str, object]) -> dict[str, object]:
    """A tolerance written as null was infinite: its quantity is not judged."""
    criterion = plain.get("criterion")
    if isinstance(criterion, dict) and isinstance(criterion.get("tolerances"), dict):
        found = criterion["tolerances"]
        criterion["tolerances"] = {
            name: math.inf if value is None else value for name, value in found.items()
        }
    return plain


def find_result(run: str | Path | None = None, state: Path = STATE_FOLDER) -> Path:
    """Return the ``drill.json`` that ``run`` means.

    Args:
        run: a ``drill.json``, a folder that holds one, or a run id; None: the latest run.
        state: the state folder of the project.

    Raises:
        UsageError: there is none.
    """
    wanted = state / "latest" if run is None else Path(run)
    candidates = [wanted, wanted / RESULT_NAME]
    if run is not None:
        candidates.append(state / "runs" / run / RESULT_NAME)
    for candidate in candidates:
        if candidate.is_file():
            return candidate
    if run is None:
        raise UsageError(f"there is no finished drill under {state}", hint=_RUN_FIRST)
    known = sorted(path.parent.name for path in state.glob(f"runs/*/{RESULT_NAME}"))
    hint = f"known runs: {', '.join(known[-5:])}" if known else _RUN_FIRST
    raise UsageError(f"{run} is no drill.json, no folder with one, and no run under {state}/runs", hint=hint)


def load_result(path: Path) -> DrillResult:
    """Load the result at ``path``, a ``drill.json`` or the folder that holds it.

    Raises:
        UsageError: it is missing, unreadable, cut off or of another schema.
    """
    return decode_result(*read_result(path, RESULT_NAME, run_first=_RUN_FIRST))


def write_reports(result: DrillResult, folder: Path) -> dict[str, Path]:
    """Write ``drill.json``, ``report.html``, ``junit.xml`` and ``summary.md`` into ``folder``, each at once.

    The result is written first, so that a failure in a rendering never loses it.

    Returns:
        The paths by format: ``json``, ``html``, ``junit``, ``markdown``.
    """
    from .html import render_html
    from .junit import render_junit
    from .markdown import render_markdown

    result = without_secrets(result)
    folder.mkdir(parents=True, exist_ok=True)
    paths = {"json": folder / RESULT_NAME}
    write_atomically(paths["json"], encode_result(result))
    for name, file, render in (
        ("junit", "junit.xml", render_junit),
        ("markdown", "summary.md", render_markdown),
        ("html", "report.html", render_html),
    ):
        paths[name] = folder / file
        write_atomically(paths[name], render(result).encode())
    return paths
