"""Golden files: what a report looked like when somebody last read and accepted it.

Update them with ``SAMESTEP_UPDATE_GOLDEN=1 pytest tests/golden`` and read the difference before committing it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

sys.path.insert(0, str(Path(__file__).parents[1]))

FILES = Path(__file__).parent / "files"


@pytest.fixture
def golden() -> Callable[[str | Path, str], None]:
    """Compare a text with its golden file, or accept it when asked to."""

    def compare(name: str | Path, text: str) -> None:
        path = FILES / name
        if os.environ.get("SAMESTEP_UPDATE_GOLDEN"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {path}: run with SAMESTEP_UPDATE_GOLDEN=1"
        assert text == path.read_text(encoding="utf-8")

    return compare
