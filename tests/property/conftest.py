from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parents[1]))

settings.register_profile("samestep", deadline=None, max_examples=40)
settings.load_profile("samestep")
