"""From what a checkpoint holds to what it can be used for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from samestep.contract import Component, Intent

from .model import PRESENCE_PHRASES, Answer, ComponentReport, Presence, Verdict

if TYPE_CHECKING:
    from .layouts import Draft

_INDISPENSABLE = (Component.WEIGHTS, Component.OPTIMIZER)
_SETTLED = (Presence.PRESENT, Presence.REBUILT, Presence.DAMAGED)  # damage is among the problems already
_NOT_FOR_RESUME = (Component.CONFIG, Component.WORLD, Component.ENVIRONMENT)


def answer_all(draft: Draft) -> tuple[Answer, ...]:
    """Say for each intent whether the checkpoint serves it."""
    return (_for_weights(draft), _for_new_run(draft), _for_resume(draft))


def _verdict(intent: Intent, blockers: list[str], caveats: list[str]) -> Answer:
    if blockers:
        return Answer(intent, Verdict.NO, tuple(dict.fromkeys(blockers)))
    return Answer(intent, Verdict.YES_BUT if caveats else Verdict.YES, tuple(dict.fromkeys(caveats)))


def _for_weights(draft: Draft) -> Answer:
    blockers = _weights_blockers(draft)
    return _verdict(Intent.WEIGHTS, blockers, draft.caveats[Intent.WEIGHTS] + _code_caveats(draft))


def _weights_blockers(draft: Draft) -> list[str]:
    report = draft.components.get(Component.WEIGHTS)
    if report is None or report.presence not in (Presence.PRESENT, Presence.DAMAGED):
        return _problems(draft) or ["it holds no weights"]
    damaged = [
        str(item)
        for item in draft.problems
        if item.file in draft.weights_files or _is_shard(draft, item.file)
    ]
    return damaged + _severe(draft, draft.weights_files)


def _is_shard(draft: Draft, file: str) -> bool:
    """Tell whether a missing or short file is one of the files that hold weights."""
    name = file.rsplit("/", 1)[-1]
    return file not in draft.unit.files and name.startswith(
        ("model", "pytorch_model", "__", ".metadata", "mp_rank")
    )


def _for_new_run(draft: Draft) -> Answer:
    caveats = draft.caveats[Intent.WEIGHTS] + draft.caveats[Intent.NEW_RUN] + _code_caveats(draft)
    config = draft.components.get(Component.CONFIG)
    if config is None or config.presence is not Presence.PRESENT:
        caveats.append("no configuration is stored: the script must build the same model by itself")
    return _verdict(Intent.NEW_RUN, _weights_blockers(draft), caveats)


def _for_resume(draft: Draft) -> Answer:
    blockers = _problems(draft) + _severe(draft, set(draft.unit.files))
    caveats = list(draft.caveats[Intent.RESUME])
    for report in draft.components.values():
        if report.presence in _SETTLED or report.component in _NOT_FOR_RESUME:
            continue
        blocks = report.component in _INDISPENSABLE or report.presence is Presence.SKIPPED
        (blockers if blocks else caveats).append(describe(report))
    return _verdict(Intent.RESUME, blockers, caveats)


def describe(report: ComponentReport) -> str:
    """Return one line on a component that does not simply come back."""
    note = f" ({report.note})" if report.note else ""
    return f"{report.component} {PRESENCE_PHRASES[report.presence]}{note}"


def _problems(draft: Draft) -> list[str]:
    return [str(problem) for problem in draft.problems]


def _severe(draft: Draft, files: set[str]) -> list[str]:
    return [
        f"unpickling {danger.file} can run commands: it names {', '.join(danger.names[:3])}"
        for danger in draft.dangers
        if danger.severe and danger.file in files
    ]


def _code_caveats(draft: Draft) -> list[str]:
    return [
        f"unpickling {danger.file} runs code of {', '.join(packages_of(danger.names))}"
        for danger in draft.dangers
        if not danger.severe and danger.file in draft.weights_files
    ]


def packages_of(names: tuple[str, ...]) -> list[str]:
    """Return the packages that dotted names belong to, each once."""
    return sorted({name.split(".")[0] for name in names})
