"""By whom a drill has saves recorded."""

import pytest

from samestep.crash.operations import SEEN, SUPERVISED
from samestep.drill.recording import choose_recorder
from samestep.process import Capability


@pytest.mark.parametrize(
    ("available", "ranks", "recorder", "left_open"),
    [
        (True, 1, SUPERVISED, ""),
        (True, 2, SUPERVISED, ""),
        (False, 1, SEEN, "no seccomp"),
        (False, 2, "", "no seccomp; not where several ranks save"),
    ],
)
def test_the_strongest_recorder_that_there_is_and_none_that_would_guess(
    monkeypatch, available, ranks, recorder, left_open
):
    able = Capability("file operations", available=available, reason="no seccomp")
    monkeypatch.setattr("samestep.drill.recording.capability", lambda: able)
    chosen, told = choose_recorder(ranks)
    assert chosen == recorder
    assert told.startswith(left_open)
    assert bool(told) == bool(left_open)
