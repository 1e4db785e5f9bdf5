"""Write the reference pages that follow from the code: ``make reference``, or ``write_reference.py FOLDER``.

Every page is a pure function of the code, so that a test can tell when one is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.testing import CliRunner

from samestep import errors
from samestep.cli.main import VERBS, cli
from samestep.config import SETTING_NAMES, Settings, describe_setting
from samestep.contract import FINDINGS, words
from samestep.drill import result
from samestep.journal import EVENTS, JOURNAL_SCHEMA, Event
from samestep.trace import orders, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
NOTE = "<!-- Written by scripts/write_reference.py from the code; do not edit. -->"
HELP_WIDTH = 100


def cli_page() -> str:
    """Return the help of every verb, as it is printed."""
    parts = ["# Command line", NOTE, "Results go to stdout, progress and errors to stderr."]
    for words_before in _commands():
        typed = [*words_before, "--help"]
        shown = CliRunner().invoke(cli, typed, prog_name="samestep", terminal_width=HELP_WIDTH)
        title = " ".join([f"{'#' * max(2, len(words_before) + 1)} samestep", *words_before])
        parts += [title, f"```console\n$ samestep {' '.join(typed)}\n{shown.output.rstrip()}\n```"]
    return _page(parts)


def _commands() -> Iterator[list[str]]:
    """Yield the words that lead to every command: nothing, each verb, and what a verb has below it."""
    yield []
    for verb in VERBS:
        yield [verb]
        command = cli.get_command(click.Context(cli), verb)
        if isinstance(command, click.Group):
            yield from ([verb, name] for name in command.commands)


def exit_codes_page() -> str:
    """Return the exit codes with the comment that stands beside each in the code."""
    source = inspect.getsource(errors.ExitCode)
    rows = re.findall(r"^    (\w+) = (\d+)  #: (.+)$", source, flags=re.MULTILINE)
    return _page(
        [
            "# Exit codes",
            NOTE,
            _table(("code", "name", "meaning"), [(code, f"`{name}`", text) for name, code, text in rows]),
            (
                "`samestep drill` ends with the worst of what it found: a defect (1) counts more than an inconclusive "
                "measurement (4). Notes change nothing unless the drill is `--strict`."
            ),
            "A *training process* that saved its state and wants to be started again exits with 75.",
        ]
    )


def configuration_page() -> str:
    """Return every setting with its default."""
    defaults = Settings()
    rows = [
        (f"`{name}`", f"`{_toml(getattr(defaults, name))}`", describe_setting(name)) for name in SETTING_NAMES
    ]
    return _page(
        [
            "# Configuration",
            NOTE,
            (
                "A flag beats an environment variable, which beats a settings file, which beats the default. "
                "`samestep config` prints every value and where it came from."
            ),
            (
                "The settings file is `samestep.toml`, or the table `[tool.samestep]` of `pyproject.toml`, in the "
                "folder a command is started in or the nearest one above it inside the git repository. "
                "An unknown key is an error."
            ),
            (
                "The variable of a setting is its name in capitals after `SAMESTEP_`: `SAMESTEP_VERIFY_STEPS=8`. "
                "Lists are separated by commas or written as JSON, tables are JSON, switches are `true` or `false`."
            ),
            _table(("setting", "default", "meaning"), rows),
            (
                "Two more variables are no settings: `SAMESTEP_DEBUG=1` shows the traceback of an error, "
                "`NO_COLOR` and `FORCE_COLOR` decide about colour."
            ),
        ]
    )


def findings_page() -> str:
    """Return the index of findings, in the order in which they explain one another."""
    rows = [
        (
            f"[{kind.slug}](../findings/{kind.slug}.md)",
            str(kind.severity),
            _components(kind.components),
            kind.title,
        )
        for kind in FINDINGS.values()
    ]
    return _page(
        [
            "# Findings",
            NOTE,
            (
                "A *defect* fails the drill (exit code 1). A *measurement* finding says that the drill cannot tell "
                "(4), unless a defect stands beside it. A *note* changes nothing unless the drill is `--strict`."
            ),
            _table(("finding", "severity", "components", "what is wrong"), rows),
        ]
    )


def drill_json_page() -> str:
    """Return the fields of ``drill.json``, from the records that it is written from."""
    structs = [
        value
        for _, value in inspect.getmembers(result, inspect.isclass)
        if value.__module__ == result.__name__
    ]
    ordered = sorted(structs, key=lambda cls: inspect.getsourcelines(cls)[1], reverse=True)
    intro = (
        f"`.samestep/latest/drill.json`, schema `{result.DRILL_SCHEMA}`. Its JSON Schema is "
        "[`schemas/drill.schema.json`](../../schemas/drill.schema.json). Fields are only ever added."
    )
    return _page(["# drill.json", NOTE, intro, *_records(ordered)])


def trace_page() -> str:
    """Return the lines of a trace, from the records that they are written from."""
    names = (
        "Header",
        "StepRecord",
        "EventRecord",
        "EndRecord",
        "State",
        "MicroStep",
        "Update",
        "Quantity",
        "Average",
    )
    intro = (
        f"One file per process: `trace-*.jsonl` in `.samestep/runs/RUN/traces/ATTEMPT/`, schema `{records.SCHEMA}`. "
        "Every line is a JSON object with a `kind`: `header`, `step`, `event`, `end`. Empty fields are left out. "
        "A killed process has no `end`. The JSON Schema is "
        "[`schemas/trace.schema.json`](../../schemas/trace.schema.json)."
    )
    told = f"What a drill tells the probe is a JSON file named by `{orders.ORDERS_VARIABLE}`:"
    return _page(
        [
            "# Trace",
            NOTE,
            intro,
            *_records([getattr(records, name) for name in names]),
            told,
            *_records([orders.Orders, orders.ParkPoint]),
        ]
    )


def journal_page() -> str:
    """Return the lines of a journal and the events that are known."""
    rows = [
        (f"`{kind.name}`", ", ".join(f"`{name}`" for name in kind.values), kind.meaning, _yes(kind.urgent))
        for kind in EVENTS.values()
    ]
    events = (
        "Others may be written, too. An urgent event is durable when the call that wrote it returns. "
        "More values than these may be there."
    )
    return _page(
        [
            "# Journal",
            NOTE,
            *_journal_lines(),
            *_records([Event]),
            *_journal_promises(),
            "## Events",
            events,
            _table(("event", "says", "meaning", "urgent"), rows),
        ]
    )


def _journal_lines() -> list[str]:
    return [
        (
            f"One file per attempt, `ATTEMPT.jsonl`, schema `{JOURNAL_SCHEMA}`: what happened, in order. "
            "Everything that is accounted later is taken from here. A commit carries the lines since the one "
            "before into the store, as `journal/ATTEMPT/FIRST.jsonl`, where `FIRST` is the number of its first "
            "line with ten digits; joined in order these segments are the journal."
        ),
        (
            "Every line is canonical JSON: UTF-8, keys sorted, no blanks, one newline at its end. Floats that "
            'JSON cannot hold are `{"$float":"nan"}`, `{"$float":"inf"}` and `{"$float":"-inf"}`. A line has at '
            "most 1 MiB."
        ),
    ]


def _journal_promises() -> list[str]:
    return [
        (
            "A line that was appended survives the process at once. It survives a power cut from the next fsync "
            "on: after 64 lines, after 5 seconds, with an urgent event, or when a segment is taken. A line that a "
            "full disk cuts off is taken back. After an fsync that failed nothing is appended any more."
        ),
        "## What a reader does with damage",
        (
            "A reader goes from line to line as long as checksum and number are right. From the first line that "
            "is not, there are two cases. Nothing after it says that it was durable (`synced`): the machine died "
            "before it was, the rest is dropped, and the reader says from which line on. A later line says so: "
            "it was changed afterwards, and reading is an error that names the line. A process that goes on "
            "with a journal cuts off the torn tail first and says so."
        ),
    ]


def words_page() -> str:
    """Return the vocabulary: outcomes, components, families, intents, severities."""
    return _page(
        [
            "# Words",
            NOTE,
            (
                "Outcomes of a scenario, worst first. What each one means is explained in "
                "[how a drill works](../explanation/how-a-drill-works.md#outcomes)."
            ),
            _listed(words.Outcome),
            "Families of scenarios:",
            _listed(words.Family),
            "Components of the training state, and of the store that keeps it:",
            _listed(words.Component),
            "Intents: what a checkpoint is wanted for.",
            _listed(words.Intent),
            "Severities of findings:",
            _listed(words.Severity),
        ]
    )


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "configuration.md": configuration_page,
    "drill-json.md": drill_json_page,
    "exit-codes.md": exit_codes_page,
    "findings.md": findings_page,
    "journal.md": journal_page,
    "trace.md": trace_page,
    "words.md": words_page,
}


def main(folder: Path) -> None:
    """Write all pages to ``folder``."""
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")


def _page(parts: Iterable[str]) -> str:
    return "\n\n".join(parts) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _records(classes: Iterable[type]) -> list[str]:
    parts = []
    for cls in classes:
        parts += [f"## {cls.__name__}", _without_markup(_summary(cls)), _fields(cls)]
    return [part for part in parts if part]


def _summary(cls: type) -> str:
    return inspect.cleandoc(cls.__doc__ or "").partition("\n\nAttributes:")[0]


def _fields(cls: type) -> str:
    described = _described(cls)
    rows = [
        (f"`{name}`", f"`{_type_name(kind)}`", described.get(name, ""))
        for name, kind in cls.__annotations__.items()
    ]
    return _table(("field", "type", "meaning"), rows)


def _described(cls: type) -> dict[str, str]:
    """Return the text of each field in the docstring's ``Attributes`` section."""
    _, _, section = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")
    found = re.findall(r"^ {4}([\w, ]+): (.+?)(?=^ {4}\S|\Z)", section, flags=re.MULTILINE | re.DOTALL)
    return {
        name.strip(): _without_markup(" ".join(text.split()))
        for names, text in found
        for name in names.split(",")
    }


def _without_markup(text: str) -> str:
    return text.replace("``", "`")


def _type_name(kind: Any) -> str:
    return kind if isinstance(kind, str) else getattr(kind, "__name__", str(kind))


def _components(components: Iterable[words.Component]) -> str:
    return ", ".join(f"`{item}`" for item in components)


def _listed(vocabulary: Iterable[words.Word]) -> str:
    return "\n".join(f"- `{word}`" for word in vocabulary)


def _yes(value: object) -> str:
    return "yes" if value else ""


def _toml(value: object) -> str:
    return {"True": "true", "False": "false", "": '""', "''": '""'}.get(str(value), str(value))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else REFERENCE)
