"""What one attempt sees at which path: the order that the keeper carries out when it enters a machine."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Layout:
    """Bind mounts in the order in which they are made.

    Folders that stay writable come before the read-only folders around them: a bind takes along what is
    mounted below.

    Attributes:
        user_namespace: enter a user namespace first.
        private_network: enter a network namespace with nothing but a loopback.
        binds: source, target and whether it is read-only.
    """

    user_namespace: bool = False
    private_network: bool = False
    binds: list[tuple[str, str, bool]] = field(default_factory=list)

    def show(self, source: Path, target: Path, *, read_only: bool = False) -> None:
        """Show ``source`` at ``target``; both must exist when the machine is entered."""
        self.binds.append((str(source), str(target), read_only))

    def protect(self, path: Path) -> None:
        """Make ``path`` read-only where it is."""
        self.show(path, path, read_only=True)

    @property
    def enter(self) -> list[str]:
        """``enter`` argument of ``ProcessTree.start``."""
        return [json.dumps(asdict(self))]
