"""An inspection in plain lines for a terminal, and as plain data for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from samestep.contract import Intent

from .answers import packages_of
from .frameworks import FRAMEWORKS
from .model import PRESENCE_PHRASES, FolderInspection, Inspection, Presence, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = "samestep.inspect/1"
"""Name and version of the JSON form."""

Tone = Literal["good", "doubtful", "bad", "plain", "title"]


class Line(NamedTuple):
    """One line of text and how it should look."""

    text: str
    tone: Tone = "plain"


_TONES: dict[Verdict, Tone] = {Verdict.YES: "good", Verdict.YES_BUT: "doubtful", Verdict.NO: "bad"}
_LABEL_WIDTH = 15
_SHOWN = 4


def describe(folder: FolderInspection) -> Iterator[Line]:
    """Yield the lines that describe what was found; control characters in names are replaced."""
    for line in _lines(folder):
        yield Line(
            "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in line.text),
            line.tone,
        )


def _lines(folder: FolderInspection) -> Iterator[Line]:
    picked = folder.picked
    if len(folder.inspections) > 1 or picked is None:
        yield from _describe_choice(folder)
    for inspection in folder.inspections:
        if inspection == picked or len(folder.inspections) == 1:
            yield from _describe_one(inspection, folder.path)


def _describe_choice(folder: FolderInspection) -> Iterator[Line]:
    yield Line(
        f"{folder.path}   {len(folder.inspections)} checkpoint{'s' if len(folder.inspections) != 1 else ''}",
        "title",
    )
    width = max(len(item.unit.path) for item in folder.inspections)
    for item in folder.inspections:
        state = "whole" if item.whole else f"not whole: {item.problems[0]}"
        resume = item.answer(Intent.RESUME).verdict
        step = f"step {item.unit.step}" if item.unit.step is not None else "step unknown"
        yield Line(f"  {item.unit.path:<{width}}  {step:<12}  resume {resume:<8}  {state}", _TONES[resume])
    chosen = folder.selection.unit
    who = "the framework takes" if folder.selection.certain else "a script would likely take"
    yield Line(_row("picked", f"{chosen.path if chosen else 'none'}   {who}: {folder.selection.rule}"))
    yield Line(_row("newest whole", folder.newest_whole.path if folder.newest_whole else "none"))
    for warning in folder.warnings:
        yield Line(_row("warning", warning), "bad")
    yield Line("")


def _describe_one(item: Inspection, path: str) -> Iterator[Line]:
    yield Line(_headline(item, path), "title")
    if item.whole:
        yield Line(_row("whole", "yes, as far as headers show"), "good")
    for number, problem in enumerate(item.problems):
        yield Line(_row("" if number else "whole", f"{'     ' if number else 'no:  '}{problem}"), "bad")
    for answer in item.answers:
        yield Line(_row(answer.intent, str(answer.verdict)), _TONES[answer.verdict])
        for reason in answer.reasons:
            yield Line(_row("", f"- {reason}"))
    yield Line("")
    for report in item.components:
        note = f"{report.where}{'; ' if report.where and report.note else ''}{report.note}"
        text = f"{PRESENCE_PHRASES[report.presence]}{': ' if note else ''}{note}"
        yield Line(
            _row(report.component, text), "plain" if report.presence is Presence.PRESENT else "doubtful"
        )
    yield from _describe_dangers(item)
    for note in item.notes:
        yield Line(_row("note", note), "doubtful")


def _describe_dangers(item: Inspection) -> Iterator[Line]:
    for danger in item.dangers:
        if danger.severe:
            more = f" and {len(danger.names) - _SHOWN} more" if len(danger.names) > _SHOWN else ""
            shown = ", ".join(danger.names[:_SHOWN]) + more
            yield Line(
                _row("dangerous", f"{danger.file} can run commands when it is unpickled: {shown}"), "bad"
            )
        else:
            packages = ", ".join(packages_of(danger.names))
            yield Line(_row("code", f"{danger.file} runs code of {packages} when it is unpickled"))


def _headline(item: Inspection, path: str) -> str:
    known = FRAMEWORKS.get(item.unit.framework)
    framework = known.title if known else "a script's own layout"
    step = f"step {item.unit.step}" if item.unit.step is not None else "step unknown"
    files = f"{len(item.unit.files)} file{'s' if len(item.unit.files) != 1 else ''}"
    name = (
        path
        if item.unit.path == "." or path.endswith(f"/{item.unit.path}") or path == item.unit.path
        else item.unit.path
    )
    return f"{name}   {framework}, {step}, {files}, {size_text(item.size_bytes)}"


def _row(label: str, text: str) -> str:
    return f"{label:<{_LABEL_WIDTH}}{text}".rstrip()


def size_text(size_bytes: int) -> str:
    """Return a size in the unit that reads best, such as ``12.3 MB``."""
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def to_plain(folder: FolderInspection, intent: Intent, version: str) -> dict[str, Any]:
    """Return the JSON form, schema ``samestep.inspect/1``.

    Args:
        folder: the inspection.
        intent: what was asked for.
        version: of samestep.
    """
    selection = asdict(folder.selection)
    selection["unit"] = folder.selection.unit.path if folder.selection.unit else None
    return {
        "schema": SCHEMA,
        "version": version,
        "path": folder.path,
        "intent": str(intent),
        "verdict": str(verdict(folder, intent)),
        "selection": selection,
        "newest_whole": folder.newest_whole.path if folder.newest_whole else None,
        "warnings": list(folder.warnings),
        "checkpoints": [_plain_inspection(item) for item in folder.inspections],
    }


def _plain_inspection(item: Inspection) -> dict[str, Any]:
    plain = asdict(item)
    return {**plain.pop("unit"), "whole": item.whole, **plain}


def verdict(folder: FolderInspection, intent: Intent) -> Verdict:
    """Return the verdict on the checkpoint that would be taken.

    Where a restart would take none, weights can still be read from the newest whole one.
    """
    item = folder.picked
    if item is None and intent is not Intent.RESUME:
        item = next((each for each in folder.inspections if each.unit == folder.newest_whole), None)
    return item.answer(intent).verdict if item else Verdict.NO
