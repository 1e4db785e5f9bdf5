"""Write the tables of ``docs/zoo.md`` from the rows that a full run of the zoo left.

    ZOO_ROWS=build/zoo pytest tests/zoo && python scripts/write_zoo.py build/zoo

``make test-full`` does both. Only what stands between the markers is replaced, and
of the two parts only those that there are rows for.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "zoo.md"
ZOO = ("<!-- tables: written by scripts/write_zoo.py -->", "<!-- end of tables -->")
MOVED = ("<!-- moved scripts: written by scripts/write_zoo.py -->", "<!-- end of moved scripts -->")
PACKAGES = ("torch", "transformers", "accelerate", "lightning", "torchdata", "peft")


def load_rows(folder: Path) -> list[dict[str, Any]]:
    """Return all rows, by framework and name."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return sorted(rows, key=lambda row: (row["framework"] != "plain", row["framework"], row["name"]))


def tables(rows: list[dict[str, Any]]) -> str:
    """Return the page's generated part."""
    defects = [row for row in rows if row["kind"] == "defect"]
    clean = [row for row in rows if row["kind"] in {"twin", "clean"}]
    caught = sum(bool(row["passed"]) for row in defects)
    quiet = sum(bool(row["passed"]) for row in clean)
    lines = [
        f"{caught} of {len(defects)} defects caught with their component named.",
        f"{quiet} of {len(clean)} clean scripts passed without an alarm. {versions()}",
        "",
        "## Defects",
        "",
        "| script | framework | defect | outcome | component named | caught at step |",
        "| --- | --- | --- | --- | --- | --- |",
        *(defect_line(row) for row in defects),
        "",
        "## Clean twins and clean scripts",
        "",
        "| script | framework | scenarios | verdict |",
        "| --- | --- | --- | --- |",
        *(clean_line(row) for row in clean),
    ]
    return "\n".join(lines)


def defect_line(row: dict[str, str]) -> str:
    """Return the table row of a defect."""
    outcome = row["outcome"] if row["passed"] else f"**missed** ({row['outcome']})"
    cells = [f"`{row['name']}`", row["framework"], row["defect"], outcome, row["component"], row["step"]]
    return f"| {' | '.join(cells)} |"


def clean_line(row: dict[str, str]) -> str:
    """Return the table row of a clean script."""
    verdict = "holds" if row["passed"] else f"**false alarm** ({row['outcome']}: {row['component']})"
    name = f"`{row['name']}`" + (" --twin" if row["kind"] == "twin" else "")
    return f"| {name} | {row['framework']} | {row['scenarios']} | {verdict} |"


def moved_table(rows: list[dict[str, Any]]) -> str:
    """Return the part about moved scripts."""
    held = sum(bool(row["passed"]) for row in rows)
    lines = [
        f"{held} of {len(rows)} moved scripts hold. {versions()}",
        "",
        "| script | moved to | what is in it | defects of the zoo that are gone | families | scenarios | verdict |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *map(moved_line, rows),
    ]
    return "\n".join(lines)


def moved_line(row: dict[str, Any]) -> str:
    """Return the table row of a moved script."""
    answers = ", ".join(f"`{name}`" for name in row["answers"])
    verdict = "holds" if row["passed"] else "**does not hold**"
    cells = [
        row["framework"],
        row["shows"],
        answers,
        ", ".join(row["families"]),
        str(row["scenarios"]),
        verdict,
    ]
    return f"| `{row['name']}` | {' | '.join(cells)} |"


def replaced(page: str, markers: tuple[str, str], text: str) -> str:
    """Return the page with ``text`` between the markers."""
    before, _, rest = page.partition(markers[0])
    _, _, after = rest.partition(markers[1])
    return f"{before}{markers[0]}\n{text}\n{markers[1]}{after}"


def versions() -> str:
    """Say what it was run with."""
    found = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES if installed(name)]
    return f"Run with Python {platform.python_version()}, {', '.join(found)}."


def installed(name: str) -> bool:
    """Say whether the distribution ``name`` is there."""
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def main() -> None:
    """Replace the tables on the page."""
    rows = load_rows(Path(sys.argv[1]))
    if not rows:
        sys.exit(f"{sys.argv[1]} holds no rows: run the zoo with ZOO_ROWS first")
    moved = [row for row in rows if row["kind"] == "moved"]
    page = PAGE.read_text(encoding="utf-8")
    if len(moved) < len(rows):
        page = replaced(page, ZOO, tables(rows))
    if moved:
        page = replaced(page, MOVED, moved_table(moved))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
