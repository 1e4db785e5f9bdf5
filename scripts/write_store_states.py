"""Write the tables of ``docs/store-states.md`` from what full runs of the tests in ``tests/crash`` left.

    STORE_STATES_ROWS=build/store-states.json pytest tests/crash/test_store_states.py tests/crash/test_run_states.py
    python scripts/write_store_states.py build/store-states.json

``make test-full`` does both. Only what stands between the markers is replaced; a table without new numbers stays.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "store-states.md"
BEGIN, END = "<!-- table of the {name}: written by scripts/write_store_states.py -->", "<!-- end of table -->"
RESTORED = {
    "store": "restored and compared",
    "run": "trained on to the end, bit for bit as without the interruption",
}


def table(name: str, row: dict[str, Any]) -> str:
    """Return one of the page's generated parts."""
    lines = [
        f"{row['checked']:,} different states checked, {row['restored']:,} of them {RESTORED[name]}:",
        f"0 lost, 0 mixed, 0 silently wrong. Seed {row['seed']}, Linux {platform.release()}.",
        "",
        "| model | states it allows | states that no weaker model allows |",
        "| --- | --- | --- |",
        *(f"| `{model}` | {allowed:,} | {added:,} |" for model, (added, allowed) in row["models"].items()),
    ]
    return "\n".join(lines)


def replaced(page: str, name: str, text: str) -> str:
    """Return the page with another text between the markers of a name."""
    begin = BEGIN.format(name=name)
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(END)}", re.DOTALL)
    return pattern.sub(lambda _: f"{begin}\n{text}\n{END}", page)


def main() -> None:
    """Replace the tables on the page."""
    path = Path(sys.argv[1])
    if not path.exists():
        sys.exit(
            f"there is no {path}: run the full tests with STORE_STATES_ROWS first; they write it when all holds"
        )
    page = PAGE.read_text(encoding="utf-8")
    for name, row in json.loads(path.read_text(encoding="utf-8")).items():
        page = replaced(page, name, table(name, row))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
