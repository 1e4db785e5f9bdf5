"""What happens under the durable folder: which files changed, and which were opened for reading."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_FILES = 20_000
"""Files looked at per scan; a larger folder is watched in part, and said to be."""

Fingerprint = tuple[int, int, int]


class DurableWatch:
    """Watches one folder by comparing file stats, and reads by the interpreter's audit events.

    Args:
        folder: the durable folder; it need not exist yet.

    Attributes:
        not_followed: what could not be followed, one sentence each.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.abspath(folder) if folder else ""  # noqa: PTH100 - links stay as named
        self._roots = names_of(folder) if folder else ()
        self._known: dict[str, Fingerprint] = {}
        self._read: dict[str, None] = {}
        self.not_followed: list[str] = []

    def install(self) -> None:
        """Take the present content as known, and begin to listen for reads (Python's and safetensors')."""
        if not self._folder:
            return
        self._known = self._scan()
        sys.addaudithook(self._on_audit)
        after_import("safetensors", self._wrap_safetensors)

    def changes(self) -> list[str]:
        """Return the files written, created or removed since the last call, relative to the folder, sorted."""
        if not self._folder:
            return []
        now = self._scan()
        known, self._known = self._known, now
        return sorted(path for path in known.keys() | now.keys() if known.get(path) != now.get(path))

    def reads(self) -> list[str]:
        """Return the files opened for reading since the last call, relative to the folder, in order."""
        read, self._read = self._read, {}
        return list(read)

    def _scan(self) -> dict[str, Fingerprint]:
        found: dict[str, Fingerprint] = {}
        for path, entry in entries_below(self._folder):
            if entry.is_dir(follow_symlinks=False):
                continue
            if len(found) >= MOST_FILES:
                self._note(f"only {MOST_FILES} files of the durable folder are watched: it holds more")
                break
            try:
                facts = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # removed since it was listed
            found[path] = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
        return found

    def _note(self, sentence: str) -> None:
        if sentence not in self.not_followed:
            self.not_followed.append(sentence)

    # -- reads -----------------------------------------------------------------------------------------------

    def _on_audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open":
            return
        try:
            path, mode, flags = arguments
            if _reads(mode, flags):
                self._note_read(path)
        except Exception:
            return  # an exception here would fail the script's own open()

    def _note_read(self, path: Any) -> None:
        if isinstance(path, int):
            return
        name = os.fsdecode(path)
        inside = place_below(self._roots, name)
        if inside and os.path.isfile(name):  # noqa: PTH113 - runs in every open()
            self._read[inside] = None

    def _wrap_safetensors(self, module: Any) -> None:
        """Wrap the native reader, which opens files without Python; its own class still answers isinstance."""
        native = module.safe_open
        watch = self

        class Kind(type):
            def __instancecheck__(cls, instance: object) -> bool:
                return isinstance(instance, native)

        class safe_open(metaclass=Kind):  # noqa: N801 - it stands in for a class of this name
            __doc__ = native.__doc__

            def __new__(cls, filename: Any, *args: Any, **keywords: Any) -> Any:
                opened = native(filename, *args, **keywords)
                watch._on_audit("open", (filename, "r", 0))
                return opened

        safe_open.__module__ = module.__name__
        for user in [module, *list(sys.modules.values())]:
            if getattr(user, "__dict__", {}).get("safe_open") is native:
                user.safe_open = safe_open


def _reads(mode: str | None, flags: int) -> bool:
    if mode is not None:
        return "r" in mode or "+" in mode
    writes_only = flags & os.O_ACCMODE == os.O_WRONLY
    return not writes_only and not flags & (os.O_CREAT | os.O_TRUNC)


def names_of(folder: str) -> tuple[str, ...]:
    """Return the absolute names of a folder: as it is called, and without links."""
    return tuple({os.path.abspath(folder), os.path.realpath(folder)})  # noqa: PTH100 - links stay as named


def place_below(roots: tuple[str, ...], name: str) -> str | None:
    """Return a path relative to the first of ``roots`` that it lies in, ``""`` for a root itself, None elsewhere."""
    whole = os.path.abspath(name)  # noqa: PTH100 - links stay as the script names them
    for root in roots:
        if whole == root or whole.startswith(root + os.sep):
            return whole[len(root) + 1 :]
    return None


def entries_below(folder: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield everything below ``folder`` with its relative path, folders before what they hold; follow no links."""
    waiting = [(folder, "")]
    while waiting:
        path, prefix = waiting.pop()
        try:
            with os.scandir(path) as entries:
                listed = list(entries)
        except OSError:
            continue  # removed since it was listed
        for entry in listed:
            yield prefix + entry.name, entry
            if entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, f"{prefix}{entry.name}/"))


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls back once a module's own code has run, before its importer goes on."""

    def __init__(self, name: str, callback: Callable[[Any], None]) -> None:
        self._name = name
        self._callback = callback
        self._busy = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:  # noqa: ARG002 - the protocol's
        """Return the module's own spec with a loader that calls back; None for every other module."""
        if name != self._name or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return None
        self._hook(spec.loader)
        return spec

    def _hook(self, loader: Any) -> None:
        run = loader.exec_module

        def exec_module(module: Any) -> None:
            vars(loader).pop("exec_module", None)
            run(module)
            _guarded(self._callback, module)

        loader.exec_module = exec_module


def after_import(name: str, callback: Callable[[Any], None]) -> None:
    """Call ``callback(module)`` when the top-level module ``name`` has been imported, at once when it is there."""
    if name in sys.modules:
        _guarded(callback, sys.modules[name])
    else:
        sys.meta_path.insert(0, _AfterImport(name, callback))


def _guarded(callback: Callable[[Any], None], module: Any) -> None:
    try:
        callback(module)
    except Exception:
        return  # a changed library is not followed; the script goes on
