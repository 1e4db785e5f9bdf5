"""How a run is made, as the user said it, checked once."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal

from samestep.bundle.retention import Policy as Retention
from samestep.contract import Intent

from .errors import RunError
from .policies import Auto, Every, policy_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from samestep.data import Replayability

    from .policies import Policy
    from .resuming import Wishes
    from .stopping import NoticeSource

SaveWhen = int | str | Every | Auto | None
Asynchronous = Literal["auto", "stage", "overlap"] | bool

_HOW = {"True": "auto", "False": "off"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that ``Run`` is told beside its objects; see there."""

    steps: int | None
    epochs: int | None
    policy: Policy
    keep: Retention | None
    accumulation: str
    asynchronous: str
    on_save_error: str
    wishes: Wishes
    seed: int | None
    data_version: str | None
    replay: Replayability | None
    limit_seconds: float
    log_to: str | Sequence[Any] | None
    progress: bool
    notices: Sequence[NoticeSource] | None
    allow_missing: tuple[str, ...]
    allow_extra: tuple[str, ...]


def checked(
    *,
    steps: int | None,
    epochs: int | None,
    save: SaveWhen,
    keep: int | Retention | None,
    intent: str,
    accumulation: str,
    asynchronous: Asynchronous,
    on_save_error: str,
    **others: Any,
) -> Settings:
    """Return the settings of a run.

    Raises:
        RunError: one cannot be used; the message names it.
    """
    if intent != Intent.RESUME:
        hint = "samestep.new_run(root, from_=..., because=...)"
        if intent == Intent.WEIGHTS:
            hint = "samestep.load_weights(model, root)"
        raise RunError(f"Run(intent={intent!r}) does not continue a run, and that is all Run does", hint=hint)
    for name, number in (("steps", steps), ("epochs", epochs)):
        if number is not None and number < 1:
            raise RunError(f"{name}={number} is no length of a run")
    _choice("accumulation", accumulation, ("boundary", "capture"))
    _choice("on_save_error", on_save_error, ("raise", "continue"))
    _choice("asynchronous", asynchronous, ("auto", "stage", "overlap", True, False))
    return Settings(
        steps=steps,
        epochs=epochs,
        policy=policy_of(save),
        keep=Retention(keep_last=keep) if isinstance(keep, int) else keep,
        accumulation=accumulation,
        asynchronous=_HOW.get(str(asynchronous), str(asynchronous)),
        on_save_error=on_save_error,
        **others,
    )


def with_ranks_fixed(settings: Settings, because: str) -> Settings:
    """Return settings that refuse another number of ranks also where a transfer is allowed."""
    return dataclasses.replace(settings, wishes=dataclasses.replace(settings.wishes, ranks_fixed=because))


def _choice(name: str, given: object, choices: Sequence[object]) -> None:
    if given not in choices:
        raise RunError(f"{name}={given!r} is unknown", hint=f"one of {', '.join(map(repr, choices))}")
