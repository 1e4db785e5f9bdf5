"""Settings and where each came from: flag, then ``SAMESTEP_*``, then a settings file, then the default.

A settings file is ``samestep.toml``, or ``[tool.samestep]`` in ``pyproject.toml``, in the folder a command is
started in or the nearest one above it.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from samestep.contract import FINDINGS, Family
from samestep.errors import ConfigError

if typing.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

ENVIRONMENT_PREFIX: Final = "SAMESTEP_"
DEFAULT_ORIGIN: Final = "default"

# Steered by other parts of samestep; no settings.
_RESERVED: Final = frozenset({"SAMESTEP_DEBUG", "SAMESTEP_ORDERS", "SAMESTEP_XXHASH"})
_SHORT_FLAGS: Final = {"grace_seconds": "grace", "timeout_seconds": "timeout", "inputs": "input"}
_FAMILIES: Final = [str(family) for family in Family]
MODELS: Final = ("kill", "nfs", "machine-lost", "power-ext4", "power-xfs", "posix-worst", "compound")
STORAGES: Final = ("ext4", "xfs", "nfs", "tmpfs", "posix", "other")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings of samestep. ``SETTING_NAMES`` are the keys; ``origins`` says where each value came from."""

    durable: Annotated[
        str,
        Meta(
            description="The folder the script saves to, when it is fixed inside the script: relative to the project. "
            "Empty: the folder given to the script as {out}."
        ),
    ] = ""
    resume_with: Annotated[
        str,
        Meta(
            description="How to restart: a whole command, or arguments added to the first one. May hold {out} and "
            "{checkpoint}. Empty: the same command again."
        ),
    ] = ""
    also: Annotated[
        list[str],
        Meta(
            description="Other settings to restart with (family transfer): each is a string of extra arguments."
        ),
    ] = []
    steps: Annotated[
        int,
        Meta(description="End the script after that many optimizer steps. 0: let it run to its end.", ge=0),
    ] = 0
    verify_steps: Annotated[
        int, Meta(description="Steps after a restart that are compared with the control.", ge=1)
    ] = 4
    grace_seconds: Annotated[
        float, Meta(description="Time between a termination notice (SIGTERM) and SIGKILL.", gt=0)
    ] = 30.0
    jobs: Annotated[
        int,
        Meta(
            description="Attempts that run at the same time. 0: chosen from the cores of this machine.", ge=0
        ),
    ] = 0
    timeout_seconds: Annotated[
        float, Meta(description="Longest time that one attempt may take before it is stopped.", gt=0)
    ] = 600.0
    inputs: Annotated[
        list[str],
        Meta(
            description="Read-only inputs outside the project (data sets, model caches) that every machine may see. "
            "Paths in a settings file are relative to that file."
        ),
    ] = []
    project_files: Annotated[
        list[str],
        Meta(
            description="Globs of the files that make up the project, copied to every machine. "
            "Empty: what git tracks, and untracked files that it does not ignore."
        ),
    ] = []
    allow_network: Annotated[
        bool, Meta(description="Let the script reach trackers and hubs. Otherwise offline variables are set.")
    ] = False
    fresh: Annotated[
        bool,
        Meta(
            description="Start every restart in a fresh process. Otherwise restarts after damage are forked from a "
            "process that has imported the libraries, and each kind of result is confirmed by a fresh one."
        ),
    ] = False
    strict: Annotated[bool, Meta(description="Notes count as defects.")] = False
    only: Annotated[list[str], Meta(description="Scenario families to run. Empty: all.")] = []
    models: Annotated[
        list[str],
        Meta(
            description="Persistence models whose disk states are tried (family crash): kill, nfs, machine-lost, "
            "power-ext4, power-xfs, posix-worst, compound. Empty: kill and power-ext4."
        ),
    ] = []
    max_states: Annotated[
        int,
        Meta(description="Most disk states of interrupted saves that are restarted (family crash).", ge=0),
    ] = 32
    storage: Annotated[
        str,
        Meta(
            description="File system that checkpoints are kept on (ext4, xfs, nfs, tmpfs, posix, other): outcomes that "
            "only a weaker one allows are notes. Empty: that of the project."
        ),
    ] = ""
    silence: Annotated[
        list[str], Meta(description="Slugs of findings that are intended here and do not count.")
    ] = []
    env: Annotated[dict[str, str], Meta(description="Environment variables for every attempt.")] = {}
    work_dir: Annotated[
        str, Meta(description="Folder for the machines of a drill. Empty: the system's temporary folder.")
    ] = ""
    origins: dict[str, str] = {}

    def origin(self, name: str) -> str:
        """Return where the value of ``name`` came from: ``default``, a flag, a variable, or ``file:line``."""
        return self.origins.get(name, DEFAULT_ORIGIN)


SETTING_NAMES: Final = tuple(name for name in Settings.__struct_fields__ if name != "origins")
_TYPES: Final = typing.get_type_hints(Settings, include_extras=True)


@dataclass(frozen=True)
class _Given:
    """A value that somebody gave, and where."""

    value: Any
    origin: str


def load_settings(flags: Mapping[str, Any], start: Path, environ: Mapping[str, str]) -> Settings:
    """Put the settings together.

    Args:
        flags: values from the command line by setting name; None and an empty tuple mean "not given".
        start: folder in which the search for a settings file begins.
        environ: environment variables.

    Raises:
        ConfigError: a key is unknown, or a value has the wrong type or lies outside its range.
    """
    given = _from_file(start) | _from_environment(environ) | _from_flags(flags)
    values = {name: _checked(name, item) for name, item in given.items()}
    _check_words("only", values, given, _FAMILIES)
    _check_words("silence", values, given, list(FINDINGS))
    _check_words("models", values, given, MODELS)
    _check_words("storage", values, given, ("", *STORAGES))
    return Settings(**values, origins={name: item.origin for name, item in given.items()})


def describe_setting(name: str) -> str:
    """Return the sentence that documents setting ``name``."""
    meta = next(item for item in _TYPES[name].__metadata__ if isinstance(item, Meta))
    return meta.description or ""


def flag_of(name: str) -> str:
    """Return the command-line flag of setting ``name``, without its dashes."""
    return _SHORT_FLAGS.get(name, name.replace("_", "-"))


def find_settings_file(start: Path) -> Path | None:
    """Return the nearest settings file at or above ``start``, not looking beyond a git repository's root."""
    for folder in (start, *start.parents):
        for candidate in (folder / "samestep.toml", folder / "pyproject.toml"):
            if candidate.is_file() and _table(candidate) is not None:
                return candidate
        if (folder / ".git").exists():
            return None
    return None


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a sentence that names the known word nearest to ``word``, or an empty string."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"did you mean {near[0]}?" if near else ""


def _from_flags(flags: Mapping[str, Any]) -> dict[str, _Given]:
    present = {name: value for name, value in flags.items() if value is not None and value != ()}
    return {
        name: _Given(list(value) if isinstance(value, tuple) else value, f"flag --{flag_of(name)}")
        for name, value in present.items()
    }


def _from_environment(environ: Mapping[str, str]) -> dict[str, _Given]:
    found = {}
    for variable in sorted(environ):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in _RESERVED:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
        if name in SETTING_NAMES:
            found[name] = _Given(_parsed(name, environ[variable], variable), f"environment {variable}")
        elif hint := suggestion(variable, [ENVIRONMENT_PREFIX + known.upper() for known in SETTING_NAMES]):
            # Only a near miss is an error: the machinery sets variables of its own with this prefix.
            raise ConfigError(
                f"environment variable {variable} is no setting", hint=hint.replace(name, variable)
            )
    return found


def _parsed(name: str, text: str, variable: str) -> Any:
    """Return the value that ``text`` stands for: JSON for lists and tables, commas for a simple list."""
    default = getattr(Settings(), name)
    if not isinstance(default, (list, dict)):
        return text
    if isinstance(default, list) and not text.lstrip().startswith("["):
        return [item.strip() for item in text.split(",") if item.strip()]
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{variable} is not valid JSON: {error}", hint=describe_setting(name)) from error


def _from_file(start: Path) -> dict[str, _Given]:
    path = find_settings_file(start)
    if path is None:
        return {}
    found = {}
    for name, value in (_table(path) or {}).items():
        origin = f"{path}:{_line_of(path, name)}"
        if name not in SETTING_NAMES:
            hint = suggestion(name, SETTING_NAMES) or "samestep config lists the known settings"
            raise ConfigError(f"{origin}: {name!r} is no setting", hint=hint)
        found[name] = _Given(_anchored(name, value, path.parent), origin)
    return found


def _table(path: Path) -> dict[str, Any] | None:
    """Return samestep's table of ``path``; None when a ``pyproject.toml`` has none."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", hint="correct the file and start again"
        ) from error
    if path.name == "samestep.toml":
        return data
    table = data.get("tool", {}).get("samestep")
    return table if isinstance(table, dict) else None


def _line_of(path: Path, name: str) -> int:
    """Return the line where a key is set; in ``pyproject.toml`` only lines after samestep's table count."""
    own_table = path.name == "samestep.toml"
    key = re.compile(rf"""\s*["']?{re.escape(name)}["']?\s*[=.\]]""")
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        own_table = own_table or line.strip().startswith("[tool.samestep")
        if own_table and (key.match(line) or f".{name}]" in line or line.strip() == f"[{name}]"):
            return number
    return 1


def _anchored(name: str, value: Any, folder: Path) -> Any:
    """Make paths of a settings file independent of the folder a command is started in."""
    if name == "work_dir" and isinstance(value, str) and value:
        return str(folder / Path(value).expanduser())
    if name == "inputs" and isinstance(value, list):
        return [str(folder / Path(item).expanduser()) if isinstance(item, str) else item for item in value]
    return value


def _checked(name: str, item: _Given) -> Any:
    from_text = item.origin.startswith("environment")
    try:
        return msgspec.convert(item.value, _TYPES[name], strict=not from_text)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{item.origin}: {name} {_plain(error)}", hint=describe_setting(name)) from error


def _plain(error: msgspec.ValidationError) -> str:
    """Return the message of ``error`` as the end of a sentence that begins with the setting's name."""
    message = str(error).replace("`", "").replace("$", "value")
    return "is not usable: " + message[0].lower() + message[1:]


def _check_words(
    name: str, values: Mapping[str, Any], given: Mapping[str, _Given], known: Sequence[str]
) -> None:
    """Refuse a word that is not in the vocabulary of setting ``name``."""
    words = values.get(name, ())
    for word in [words] if isinstance(words, str) else words:
        if word not in known:
            hint = suggestion(word, known) or f"known: {', '.join(filter(None, known))}"
            raise ConfigError(f"{given[name].origin}: {name} does not know {word!r}", hint=hint)
