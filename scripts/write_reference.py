"""Write the reference pages that follow from the code: ``make reference``, or ``write_reference.py FOLDER``.

Every page is a pure function of the code, so that a test can tell when one is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
from click.testing import CliRunner

from samestep import errors
from samestep.cli.main import VERBS, cli
from samestep.config import SETTING_NAMES, Settings, describe_setting
from samestep.contract import FINDINGS, words
from samestep.cost import inputs as cost_inputs
from samestep.cost import result as cost_result
from samestep.cost.cases import keys
from samestep.cost.offers import QUIRKS
from samestep.drill import result
from samestep.journal import EVENTS, JOURNAL_SCHEMA, Event
from samestep.ledger import rows
from samestep.trace import orders, records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

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


def cost_json_page() -> str:
    """Return the fields of ``cost.json``, from the records that it is written from."""
    structs = [value for module in (cost_result, rows, cost_inputs) for value in reversed(_structs(module))]
    intro = (
        f"Written by [`samestep cost`](../how-to/cost.md), schema `{cost_result.SCHEMA}`. Its JSON Schema is "
        "[`schemas/cost.schema.json`](../../schemas/cost.schema.json). Fields are only ever added. A number that is "
        "infinite, such as the end of a run that never ends, is `null`."
    )
    return _page(["# cost.json", NOTE, intro, *_records(structs)])


def _structs(module: ModuleType) -> list[type]:
    """Return the records of a module in the order in which they stand there."""
    found = [
        value
        for _, value in inspect.getmembers(module, inspect.isclass)
        if value.__module__ == module.__name__ and issubclass(value, msgspec.Struct)
    ]
    return sorted(found, key=lambda cls: inspect.getsourcelines(cls)[1])


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
        (f"`{kind.name}`", _named(kind.values), _named(kind.also), kind.meaning, _yes(kind.urgent))
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
            _table(("event", "says", "may say", "meaning", "urgent"), rows),
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


_CASE = """\
[work]
tokens = 2_000_000_000
per_step = 524_288

[measured]
step = { value = "2.1s", low = "2.0s", high = "2.4s", count = 500 }
save = "4s"
persist = "45s"
restart = "6 min"

[risk]
mean = "4h"
interruptions = 12
observed = "2 days"
wait = "20 min"

[policy]
capacity = "spot"
deadline = "36h"

[[offers]]
provider = "my cloud"
instance = "8 GPUs"
on_demand = 24.0
spot = 8.5
priced = 2026-11-01
"""


def cost_inputs_page() -> str:
    """Return what a prediction can be given, key by key, and what importers report."""
    return _page(
        [
            "# Inputs of a prediction",
            NOTE,
            (
                "What [`samestep cost`](../how-to/cost.md) is made from: a case file, what was measured, and offers. "
                "Whatever cannot be meant is refused with its file, line and key: an unknown key, a negative or "
                "missing price, a number that is not finite, a time without a time zone, several currencies."
            ),
            *_case_file(),
            *_measured_file(),
            *_journals_to_ledgers(),
            *_offers(),
        ]
    )


def _case_file() -> list[str]:
    lives = {
        f"risk.model = {name!r}": (keys.LIVES[name], kind)
        for name, kind in zip(keys.LIVES, typing.get_args(cost_inputs.Lives), strict=True)
    }
    tables = {
        "[work]": (keys.WORK, cost_inputs.Work),
        "[measured]": (keys.MEASURED, cost_inputs.Measured),
        "[risk]": (keys.RISK, cost_inputs.Risk),
        **lives,
        "[policy]": (keys.POLICY, cost_inputs.Policy),
        "[[offers]]": (keys.OFFER, cost_inputs.Offer),
    }
    parts = [
        "## Case file",
        f"```toml\n{_CASE}```",
        (
            'TOML. A duration is a text such as `"90s"`, `"10 min"`, `"1h 30min"`, `"2 days"`, or a number of seconds. '
            "A *measured* value is a number, or a table that also says how sure it is: "
            '`{ value = "1.2s", low = "1.1s", high = "1.4s", count = 500, source = "pilot" }`. '
            "What the file says by hand counts before what was measured of a run; what it leaves out of `[measured]` "
            "and `[risk]` is taken from there."
        ),
        (
            "At the top: `seed` (of every random draw), `paths` (simulated runs), `offers_from` (own tables of offers, "
            "relative to the case file). `measured.from` names a file of measurements. `risk.model` is `exponential` "
            "where nothing is said."
        ),
    ]
    for title, (own, struct) in tables.items():
        parts += [f"### `{title}`", _keys(own, struct)]
    return parts


def _keys(own: dict[str, keys.Key], struct: type) -> str:
    described = _described(struct)
    rows = [
        (f"`{name}`", key.kind, key.unit, key.meaning or described.get(key.field, ""))
        for name, key in own.items()
    ]
    return _table(("key", "written as", "unit", "meaning"), rows)


def _measured_file() -> list[str]:
    return [
        "## File of measurements",
        (
            f"JSON, schema `{cost_inputs.MEASURED_SCHEMA}`. `step_seconds`, `save_seconds` and `restart_seconds` must "
            "be there; what else is missing counts as zero. Seconds and bytes throughout."
        ),
        *_records([cost_inputs.Measured, cost_inputs.Quantity]),
        "## What is measured where",
        _table(
            ("quantity", "from a run's store", "from a drill"),
            [
                (
                    "`step_seconds`",
                    "ranges of steps in journals, without waits for data",
                    "steps of the controls, watched",
                ),
                (
                    "`stall_seconds`",
                    "waits in these ranges; not where the loop takes its batches by itself",
                    "",
                ),
                ("`save_seconds`", "from asking for a save until its state was captured", ""),
                (
                    "`persist_seconds`",
                    "from there until the commit; manifests where a journal ends before",
                    "",
                ),
                ("`persist_share`", "ranges of steps during saves against ranges beside them", ""),
                (
                    "`restart_seconds`",
                    "from the start of the process to its first step",
                    "restarts of fresh processes, watched",
                ),
                ("`save_bytes`, `kept_bytes`", "manifests, and the records of commits and removals", ""),
                ("`save_requests`", "objects that a commit has made, in an object store", ""),
                ("`risk`", "attempts that were interrupted, and the running time of all", ""),
            ],
        ),
        (
            "An interruption is an attempt that left no word of its end, or left on a notice that no person gave. "
            "Errors of the script, Ctrl-C and ends are none; their time counts as observed. A notice was *usable* when "
            "the state of its step was committed before the end."
        ),
    ]


def _journals_to_ledgers() -> list[str]:
    sources = {
        rows.Row.UNIQUE: "ranges of steps up to the step that the next attempt went on from",
        rows.Row.REPEATED: "ranges of steps after it; the last ones from a file that outlives the process",
        rows.Row.SAVING: "from asking for a save until training goes on",
        rows.Row.RESTART: "from the start of the process to the first step, and the boot that is said",
        rows.Row.NOTICE_TAIL: "from a notice to the end, steps taken out",
        rows.Row.DATA_STALL: "waits inside of ranges of steps",
        rows.Row.IDLE: "what is left of an attempt; in money also minimum charges and rounding",
        rows.Row.CAPACITY_WAIT: "between the end of an attempt and the start of the next",
        rows.Row.FALLBACK: "attempts that were said to have run on demand",
        rows.Row.STORAGE: "bytes of bundles from commit to removal; shared bytes once; a month has 730 hours",
        rows.Row.TRANSFER: "bytes written by saves and read by restores",
        rows.Row.REQUESTS: "objects made by saves, where the store lies in an object store",
    }
    return [
        "## The ledgers of a run",
        (
            "Every moment from the start of the first attempt to the end of the newest stands in one row of the time "
            "ledger. In money the seconds of an attempt are paid at its price; what two attempts do at the same time "
            "is paid twice."
        ),
        _table(
            ("row", "meaning", "in an actual run"),
            [(f"`{row}`", _without_markup(rows.MEANINGS[row]), sources[row]) for row in rows.Row],
        ),
        (
            "Not known: what an attempt did after its last save when its journal went with its machine, and a process "
            "that ended before it had registered. Both stand as capacity wait, and the first is said. A journal does "
            "not know of the boot of a machine either."
        ),
    ]


def _offers() -> list[str]:
    return [
        "## Table of offers",
        (
            "TOML with `[[offers]]`, or CSV with the same names as columns, where an empty field leaves its value out. "
            "`provider`, `instance` and one of the prices must be there."
        ),
        "## Importers",
        _table(
            ("format", "what is read", "what it does not say"),
            [
                (
                    "SkyPilot catalogue, CSV, version 7 or 8",
                    "instance, accelerator and how many, region, zone, both prices; `GpuInfo` is checked and not used",
                    "the provider, where its path does not say it; the day of the prices",
                ),
                (
                    "AWS `describe-spot-price-history`, JSON, one page or several",
                    "per machine and zone the newest price of Linux, and the mean weighted by time",
                    "on-demand prices",
                ),
            ],
        ),
        (
            "A catalogue is read as a stream: of a million rows only the offers that are kept are in memory. Nothing "
            "that is odd is guessed away; each kind of oddity is reported with file and line:"
        ),
        _table(
            ("kind", "what it is, and what is done"), [(f"`{kind}`", text) for kind, text in QUIRKS.items()]
        ),
    ]


PAGES: dict[str, Callable[[], str]] = {
    "cli.md": cli_page,
    "configuration.md": configuration_page,
    "cost-inputs.md": cost_inputs_page,
    "cost-json.md": cost_json_page,
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


def _named(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _yes(value: object) -> str:
    return "yes" if value else ""


def _toml(value: object) -> str:
    return {"True": "true", "False": "false", "": '""', "''": '""'}.get(str(value), str(value))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else REFERENCE)
