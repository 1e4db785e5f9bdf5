"""Write the table of ``docs/store-states.md`` from what a full run of ``tests/crash/test_store_states.py`` left.

    STORE_STATES_ROWS=build/store-states.json pytest tests/crash/test_store_states.py
    python scripts/write_store_states.py build/store-states.json

``make test-full`` does both. Only what stands between the markers is replaced.
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "store-states.md"
BEGIN, END = "<!-- table: written by scripts/write_store_states.py -->", "<!-- end of table -->"


def table(row: dict[str, Any]) -> str:
    """Return the page's generated part."""
    lines = [
        f"{row['checked']:,} different states checked, {row['restored']:,} of them restored and compared:",
        f"0 lost, 0 mixed, 0 silently wrong. Seed {row['seed']}, Linux {platform.release()}.",
        "",
        "| model | states it allows | states that no weaker model allows |",
        "| --- | --- | --- |",
        *(f"| `{model}` | {allowed:,} | {added:,} |" for model, (added, allowed) in row["models"].items()),
    ]
    return "\n".join(lines)


def main() -> None:
    """Replace the table on the page."""
    path = Path(sys.argv[1])
    if not path.exists():
        sys.exit(
            f"there is no {path}: run the full test with STORE_STATES_ROWS first; it writes it when all holds"
        )
    row = json.loads(path.read_text(encoding="utf-8"))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{table(row)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
