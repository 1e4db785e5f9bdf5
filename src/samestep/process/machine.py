"""Machines: the fresh surroundings that each attempt of a drill lives in, all at the same absolute paths."""

from __future__ import annotations

import os
import socket
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from samestep.errors import MachineError
from samestep.process.copying import copy_tree, explained, fingerprint, remove_tree
from samestep.process.isolation import Isolation, probe_isolation
from samestep.process.layout import Layout
from samestep.process.project_copies import ProjectCopies
from samestep.process.projects import left_behind
from samestep.process.surroundings import environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDERS = ("out", "home", "tmp", "cache")
HOSTS = Path("/etc/hosts")
ENVIRONMENT_FOLDERS = (".venv", "venv")


@dataclass(eq=False)
class Site:
    """Where the machines of one drill stand; make one with :meth:`create`, preferably in a ``with`` block.

    Attributes:
        project: the original project folder.
        base: folder that holds the machines, removed at the end.
        isolation: how machines are kept apart, and why not better.
        durable: the folder that is carried over, when the command has a fixed one.
        inputs: declared read-only inputs (absolute paths).
        keep: patterns of the files that machines get; empty: what belongs to the project for git.
        copies: give them those files.
        writable: folders of the original that attempts may write to (where the probe leaves its traces).
        offline: attempts are kept from trackers and hubs.
    """

    project: Path
    base: Path
    isolation: Isolation
    durable: Path | None = None
    inputs: tuple[Path, ...] = ()
    keep: tuple[str, ...] = ()
    writable: tuple[Path, ...] = ()
    offline: bool = True
    copies: ProjectCopies = field(init=False)
    _input_prints: dict[str, str] = field(default_factory=dict)
    _machines: dict[str, Machine] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Know what of the project goes to machines."""
        places = [self.base, *([self.project / self.durable] if self.durable else [])]
        inside = [place.relative_to(self.project) for place in places if place.is_relative_to(self.project)]
        without = [path for path in (*self.inner_inputs, *inside) if path.parts]
        self.copies = ProjectCopies(self.project, self.base / "copies", self.keep, without)

    @classmethod
    def create(
        cls,
        project: Path,
        base: Path | None = None,
        *,
        durable: str | None = None,
        inputs: Sequence[str | Path] = (),
        keep: Sequence[str] = (),
        writable: Sequence[Path] = (),
        offline: bool = True,
        sequential: bool = False,
    ) -> Site:
        """Prepare a place for machines.

        Args:
            project: folder of the project, the working directory of the command.
            base: where the folder for the machines is made; default the system's temporary folder.
            durable: a fixed output folder of the command, relative to the project or absolute.
            inputs: data sets and model caches to share read-only, relative to the project or absolute.
            keep: patterns of the project files that machines get.
            writable: folders that attempts may write to, besides ``.samestep`` of the project.
            offline: keep attempts from trackers and hubs; without it they share this computer's network.
            sequential: one machine at a time, even where namespaces work.

        Raises:
            MachineError: the project or an input is missing, or nothing can be written at ``base``.
        """
        project = project.resolve()
        if not project.is_dir():
            raise MachineError(f"the project folder {project} does not exist")
        isolation = Isolation("sequential", reason="asked for") if sequential else probe_isolation()
        resolved = tuple(_input(project, Path(entry)) for entry in inputs)
        folder = _durable(project, durable, isolation) if durable else None
        prints = {name: sketch for entry in resolved for name, sketch in fingerprint(entry).items()}
        with explained("no machines can be prepared"):
            if base is not None:
                base.mkdir(parents=True, exist_ok=True)
            place = Path(tempfile.mkdtemp(prefix="samestep-", dir=base)).resolve()
            (place / "hosts").write_text(own_hosts(), encoding="utf-8")
        writes = tuple(path.resolve() for path in (project / ".samestep", *writable))
        return cls(project, place, isolation, folder, resolved, tuple(keep), writes, offline, prints)

    @property
    def seat(self) -> Path:
        """The fixed path at which every attempt sees its machine."""
        return self.base / "seat"

    @property
    def hosts(self) -> Path:
        """Names that resolve on a machine with a network of its own."""
        return self.base / "hosts"

    @property
    def inner_inputs(self) -> list[Path]:
        """The inputs that lie in the project, relative to it."""
        return [
            entry.relative_to(self.project) for entry in self.inputs if entry.is_relative_to(self.project)
        ]

    @property
    def parallel(self) -> bool:
        """Whether attempts can run at the same time without meeting, not even on a port."""
        return self.isolation.mode == "namespace" and self.isolation.private_network and self.offline

    def machine(self, name: str) -> Machine:
        """A fresh machine: a copy of the project, an empty durable folder, an empty home.

        Raises:
            MachineError: it exists already, another one holds the only seat, or it could not be written.
        """
        if name in self._machines:
            raise MachineError(f"the machine {name} exists already")
        sequential = self.isolation.mode == "sequential"
        if sequential and self._machines:
            occupant = next(iter(self._machines))
            raise MachineError(f"the machine {name} has to wait: {occupant} holds the only seat")
        folder = self.seat if sequential else self.base / "machines" / name
        machine = self._machines[name] = Machine(name, self, folder)
        try:
            machine.furnish()
        except BaseException:
            machine.destroy()
            raise
        return machine

    def left_behind(self) -> list[str]:
        """What git ignores in the project and machines therefore lack: candidates for ``inputs``."""
        names = left_behind(self.project)
        return [
            name for name in names if not any(Path(name).is_relative_to(entry) for entry in self.inner_inputs)
        ]

    def changed_inputs(self) -> list[str]:
        """Files of the declared inputs that were written, added or removed since the site was created."""
        before = self._input_prints
        now: dict[str, str] = {}
        for entry in self.inputs:
            now |= fingerprint(entry) if entry.exists() else {}
        return sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))

    def forget(self, machine: Machine) -> None:
        """Give the seat of a destroyed machine free."""
        self._machines.pop(machine.name, None)

    def close(self) -> None:
        """Destroy every machine and the folder that holds them."""
        for machine in list(self._machines.values()):
            machine.destroy()
        remove_tree(self.base)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(eq=False)
class Machine:
    """Fresh surroundings of one attempt; made by :meth:`Site.machine`.

    Attributes:
        name: name of the machine.
        site: where it stands.
        folder: its real folder, seen from here.
    """

    name: str
    site: Site
    folder: Path

    @property
    def out(self) -> Path:
        """Its durable folder, seen from here."""
        durable = self.site.durable
        return self.project / durable if durable and not durable.is_absolute() else self.folder / "out"

    @property
    def seat_out(self) -> Path:
        """Its durable folder, as the command sees it."""
        durable = self.site.durable
        return self.site.seat / "out" if durable is None else self.seat_project / durable

    @property
    def seat_project(self) -> Path:
        """Its copy of the project, as the command sees it: the working directory."""
        return self.site.seat / "project"

    @property
    def project(self) -> Path:
        """Its copy of the project, seen from here."""
        return self.folder / "project"

    @property
    def enter(self) -> list[str]:
        """``enter`` argument of ``ProcessTree.start`` for this machine; empty where no namespace is used."""
        isolation = self.site.isolation
        if isolation.mode == "sequential":
            return []
        layout = Layout(isolation.user_namespace, isolation.private_network and self.site.offline)
        if layout.private_network and HOSTS.exists():
            layout.show(self.site.hosts, HOSTS, read_only=True)
        layout.show(self.folder, self.site.seat)
        for entry in self.site.inner_inputs:
            layout.show(self.site.project / entry, self.seat_project / entry, read_only=True)
        if self.site.durable and self.site.durable.is_absolute():
            layout.show(self.folder / "out", self.site.durable)
        for path in self.site.writable:
            if path.exists():
                layout.show(path, path)
        for path in (*self.site.inputs, self.site.project, *_home()):
            layout.protect(path)
        return layout.enter

    def environment(self, base_env: Mapping[str, str]) -> dict[str, str]:
        """Environment for commands on this machine, from the user's (see ``process.surroundings``)."""
        env = environment(base_env, self.site.seat, inputs=self.site.inputs, offline=self.site.offline)
        if self.site.isolation.mode == "sequential":
            env["PYTHONDONTWRITEBYTECODE"] = "1"  # nothing else keeps .pyc files out of the original project
        return env

    def furnish(self) -> None:
        """Make its folders and copy the project."""
        site = self.site
        with explained(f"the machine {self.name} could not be prepared in {site.base}"):
            site.seat.mkdir(exist_ok=True)
            for name in FOLDERS:
                (self.folder / name).mkdir(parents=True)
            site.copies.give(self.project)
            for entry in site.inner_inputs:
                self._share(site.project / entry, self.project / entry)
            for name in ENVIRONMENT_FOLDERS:
                if (site.project / name / "pyvenv.cfg").exists() and not (self.project / name).exists():
                    (self.project / name).symlink_to(site.project / name)
            self.out.mkdir(parents=True, exist_ok=True)

    def _share(self, source: Path, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        if self.site.isolation.mode == "sequential":
            target.symlink_to(source)
        elif source.is_dir():
            target.mkdir()
        else:
            target.touch()

    def place(self, durable_snapshot: Path) -> None:
        """Make the durable folder equal to a snapshot: the disk state that the next attempt finds.

        Raises:
            MachineError: it could not be copied.
        """
        with explained(f"{self.out} could not be cleared"):
            self.out.mkdir(parents=True, exist_ok=True)
            for entry in self.out.iterdir():
                remove_tree(entry)
        copy_tree(durable_snapshot, self.out)

    def snapshot(self, target: Path) -> None:
        """Copy the durable folder, byte for byte, to ``target``, which must not exist yet.

        Freeze the process tree first: a snapshot of files that are being written is no disk state.

        Raises:
            MachineError: it could not be copied.
        """
        with explained(f"{target} could not be written"):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.mkdir()
        if self.out.exists():  # a command may remove its own output folder
            copy_tree(self.out, target)

    def retire(self) -> None:
        """Remove all of it, but keep an untouched copy of the project for another machine; none of its processes lives.

        Raises:
            MachineError: it could not be removed.
        """
        with explained(f"the machine {self.name} could not be removed"):
            self.site.copies.take_back(self.project)
        self.destroy()

    def destroy(self) -> None:
        """Remove all of it: a way back to a lost machine must fail visibly."""
        remove_tree(self.folder)
        self.site.forget(self)


def own_hosts() -> str:
    """Host names for a private network: what is known here, and this computer's name without any name server."""
    known = HOSTS.read_text(encoding="utf-8", errors="replace") if HOSTS.exists() else ""
    return f"{known}\n127.0.0.1 localhost {socket.gethostname()}\n::1 localhost\n"


def _home() -> list[Path]:
    """The user's real home folder, unless it is missing or the root of the file system."""
    home = Path.home().resolve()
    return [home] if home.is_dir() and home != Path(home.anchor) else []


def _input(project: Path, entry: Path) -> Path:
    path = Path(os.path.normpath(project / entry.expanduser()))
    if not path.exists():
        raise MachineError(f"the input {path} does not exist", hint="correct the inputs setting")
    return path


def _durable(project: Path, text: str, isolation: Isolation) -> Path:
    """The durable folder: relative to the project, or absolute where the command insists on that path."""
    given = Path(text)
    path = Path(os.path.normpath(project / given))
    if path.exists() and not path.is_dir():
        raise MachineError(f"the durable path {path} is a file", hint="name the folder that holds it")
    if not given.is_absolute():
        if not path.is_relative_to(project):
            raise MachineError(
                f"the durable folder {text} leads out of {project}", hint="give its absolute path"
            )
        return Path(os.path.relpath(path, project))
    if isolation.mode == "sequential":
        raise MachineError(
            f"the durable folder {text} cannot be given to each attempt: {isolation.reason}",
            hint="let the command write below its working directory, or use {out}",
        )
    if not path.is_dir():
        hint = "create it: each attempt sees its own in that place"
        raise MachineError(f"the durable folder {text} does not exist", hint=hint)
    return path
