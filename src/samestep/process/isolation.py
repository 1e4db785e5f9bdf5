"""How machines get the same absolute paths on this computer: found by trying, not by guessing."""

from __future__ import annotations

import ctypes
import functools
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from samestep.errors import MachineError
from samestep.process.copying import reflink
from samestep.process.keeper import PR_SET_CHILD_SUBREAPER
from samestep.process.layout import Layout
from samestep.process.tree import ProcessTree

TRIAL_SECONDS = 20.0


@dataclass(frozen=True)
class Isolation:
    """What separates the machines of a drill.

    Attributes:
        mode: ``namespace`` (each attempt sees its own folders at the same paths, several may run at once) or
            ``sequential`` (one machine at a time at the fixed path).
        user_namespace: the mounts need an unprivileged user namespace.
        private_network: each attempt has a loopback of its own and no other network.
        reason: why it is not more than that; empty when nothing is missing.
    """

    mode: str
    user_namespace: bool = False
    private_network: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Capability:
    """One thing this computer can or cannot do for a drill, and why."""

    name: str
    available: bool
    reason: str


@functools.cache
def probe_isolation() -> Isolation:
    """Try the strongest isolation first and keep what works, with the reason for what does not."""
    reasons: dict[str, str] = {}
    for private_network in (True, False):
        for user_namespace in (False, True) if os.geteuid() == 0 else (True,):
            complaint = _try_namespaces(user_namespace=user_namespace, private_network=private_network)
            if not complaint:
                return Isolation("namespace", user_namespace, private_network, "; ".join(reasons.values()))
            kind = "user namespace" if user_namespace else "mount namespace"
            reasons.setdefault(kind, f"{kind}: {complaint}")
    return Isolation("sequential", reason="; ".join(reasons.values()))


def _try_namespaces(*, user_namespace: bool, private_network: bool = False) -> str:
    """Start a real command in real namespaces; what went wrong, or an empty string."""
    with tempfile.TemporaryDirectory(prefix="samestep-trial-") as name:
        base = Path(name)
        for folder in ("machine", "seat", "kept"):
            (base / folder).mkdir()
        layout = Layout(user_namespace=user_namespace, private_network=private_network)
        layout.show(base / "machine", base / "seat")
        layout.protect(base / "kept")
        test = f"echo here > {base}/seat/written && ! touch {base}/kept/spoilt"
        return _run_trial(["sh", "-c", test], layout, base)


def _run_trial(argv: list[str], layout: Layout, base: Path) -> str:
    env = {"PATH": os.environ.get("PATH", os.defpath)}
    log = base / "log"
    try:
        with ProcessTree.start(argv, env=env, cwd=base / "seat", log_path=log, enter=layout.enter) as tree:
            code = tree.wait(TRIAL_SECONDS)
    except MachineError as error:
        return error.message.partition(": ")[2]
    if code == 0 and (base / "machine" / "written").exists():
        return ""
    return f"mounts have no effect (exit code {code})"


def capabilities(base: Path | None = None) -> list[Capability]:
    """What this computer can do for machines and process trees, each tried for real.

    Args:
        base: where machines would live; default the system's temporary folder.
    """
    return [
        _machines(),
        _namespace("mount namespace", user_namespace=False),
        _namespace("user namespace", user_namespace=True),
        _private_network(),
        _subreaper(),
        _proc(),
        _reflink(base or Path(tempfile.gettempdir())),
    ]


def _machines() -> Capability:
    isolation = probe_isolation()
    if isolation.mode == "namespace":
        return Capability("parallel machines", True, "attempts run at the same time, all at the same paths")
    return Capability("parallel machines", False, f"attempts run one after the other ({isolation.reason})")


def _namespace(name: str, *, user_namespace: bool) -> Capability:
    complaint = _try_namespaces(user_namespace=user_namespace)
    return Capability(name, not complaint, complaint or "works, with read-only binds")


def _private_network() -> Capability:
    if probe_isolation().private_network:
        return Capability("private network", True, "an attempt has its own loopback and reaches nothing else")
    return Capability("private network", False, f"attempts share this network ({probe_isolation().reason})")


def _subreaper() -> Capability:
    answer = ctypes.c_int(-1)
    get_child_subreaper = PR_SET_CHILD_SUBREAPER + 1
    if ctypes.CDLL(None).prctl(get_child_subreaper, ctypes.byref(answer), 0, 0, 0) != 0:
        return Capability("subreaper", False, "not known to this kernel")
    return Capability("subreaper", True, "orphans stay in their tree")


def _proc() -> Capability:
    try:
        Path(f"/proc/{os.getpid()}/environ").read_bytes()
    except OSError as error:
        return Capability("process table", False, f"/proc cannot be read: {error.strerror}")
    return Capability("process table", True, "processes are found by their environment")


def _reflink(base: Path) -> Capability:
    try:
        with tempfile.TemporaryFile(dir=base) as source, tempfile.TemporaryFile(dir=base) as target:
            source.write(b"x" * 4096)
            source.flush()
            works = reflink(source.fileno(), target.fileno())
    except OSError as error:
        return Capability("reflink", False, f"{base}: {error.strerror}")
    return Capability("reflink", works, f"copies on {base} {'share blocks' if works else 'are written out'}")
