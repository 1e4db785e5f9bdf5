"""The two other intents: a new run from another's weights, and the weights alone."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from samestep.bundle.storage.opening import open_storage
from samestep.bundle.store import Store
from samestep.contract import Component, Intent
from samestep.state import restore
from samestep.state.tracking import track

from .errors import MethodChanged, RunError
from .run import Run

if TYPE_CHECKING:
    from pathlib import Path

    from samestep.bundle.bundles import Bundle

    from .session import Session
    from .tracking import Tracking


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where the weights of a new run come from.

    Attributes:
        store: of the run that has them.
        bundle: that holds them.
        because: why there is a new run.
    """

    store: Store
    bundle: Bundle
    because: str

    @property
    def lineage(self) -> dict[str, Any]:
        """What the new run's identity keeps of it."""
        return {
            "intent": str(Intent.NEW_RUN),
            "from": self.store.run.id,
            "bundle": self.bundle.id,
            "step": self.bundle.step,
            "because": self.because,
        }

    def check(self, store: Store) -> None:
        """Refuse a store whose run began otherwise; a restart of the new run finds its own lineage there.

        Raises:
            MethodChanged: it began otherwise.
        """
        found = store.run.lineage
        if found.get("from") != self.store.run.id or found.get("because") != self.because:
            began = (
                f"from {found['from']}, because {found.get('because')}"
                if found.get("from")
                else "from nothing"
            )
            raise MethodChanged(
                f"{store.storage.url} holds {store.run.id}, which began {began}",
                hint="give the new run a root of its own",
            )

    def load(self, tracking: Tracking, session: Session) -> None:
        """Put the weights in place."""
        for name, model in tracking.of(Component.WEIGHTS).items():
            _load(name, model, self.store, self.bundle)
        session.note("weights-loaded", run=self.store.run.id, bundle=self.bundle.id, step=self.bundle.step)


def new_run(root: str | Path, *, from_: str | Path, because: str, bundle: str = "", **arguments: Any) -> Run:
    """Return a new run that starts from the weights of another.

    It gets an identity of its own, which keeps where it comes from and why. Nothing but the weights is taken over. The
    same line, run again after an interruption, goes on with the new run.

    Args:
        root: folder or URL of the new run.
        from_: root of the run that has the weights.
        because: why there is a new run.
        bundle: id of the bundle, or the beginning of one; by default the newest that can be used.
        arguments: of ``Run``.

    Raises:
        RunError: no reason is given.
        StoreError: the other run, or the bundle, cannot be used.
    """
    if not because.strip():
        raise RunError("a new run was asked for and nothing says why", hint="because='...'")
    store = Store.open(open_storage(from_), writing=False)
    run = Run(root, **arguments)
    run.begin_from(Origin(store, _chosen(store, bundle, Intent.NEW_RUN), because))
    return run


def load_weights(model: Any, from_: str | Path, *, bundle: str = "", name: str = "model") -> str:
    """Load the weights of a bundle into ``model``, and nothing else.

    Args:
        model: a module, or whatever was tracked under ``name``.
        from_: root of the run.
        bundle: id of the bundle, or the beginning of one; by default the newest that can be used.
        name: that the model was tracked under; ``ema`` for averaged weights.

    Returns:
        The id of the bundle.

    Raises:
        StateError: the weights do not fit.
        StoreError: the run, or the bundle, cannot be used.
    """
    store = Store.open(open_storage(from_), writing=False)
    chosen = _chosen(store, bundle, Intent.WEIGHTS)
    _load(name, model, store, chosen)
    return chosen.id


def _chosen(store: Store, bundle: str, intent: Intent) -> Bundle:
    return store.bundle(bundle) if bundle else store.chosen(store.select(intent=intent))


def _load(name: str, model: Any, store: Store, bundle: Bundle) -> None:
    restored = restore([track(name, model)], bundle, store.storage, strict=False)
    if name not in restored.names:
        raise RunError(
            f"{bundle.id} holds nothing under the name {name}",
            hint="samestep bundle show lists its parts; say name=... if the model was tracked under another",
        )
