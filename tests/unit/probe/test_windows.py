"""The state machine that decides what one step is."""

from __future__ import annotations

import pytest

from samestep.probe.windows import Windows


class Log:
    """Notes what the windows report."""

    def __init__(self):
        self.lines = []
        self.weights_change = True

    def boundary(self, steps):
        self.lines.append(f"boundary {steps}")

    def opened(self, window):
        self.lines.append(f"opened {window.number}")

    def micro_begins(self, window):
        self.lines.append(f"micro {window.number}.{len(window.micros)}")

    def closed(self, window):
        names = "+".join(name if applied else f"({name})" for name, applied in window.updates)
        self.lines.append(f"closed {window.number} {names}")

    def idle(self, optimizer):
        self.lines.append(f"idle {optimizer}")

    def changed(self, window):
        return self.weights_change


@pytest.fixture
def log():
    return Log()


def play(log, script):
    """Play ``f`` forward, ``b`` backward, ``A``/``B`` optimizer calls, ``(A)`` skipped ones, ``.`` the end."""
    windows = Windows(log)
    for word in script.split():
        if word == "f":
            windows.forward()
        elif word == "b":
            windows.backward()
            windows.backward_ends()
        elif word == ".":
            windows.finish()
        else:
            windows.update_begins(word.strip("()"))
            windows.update_ends(word.strip("()"), applied="(" not in word)
    return log.lines


def closings(lines):
    return [line for line in lines if line.startswith("closed")]


def test_a_step_is_written_before_its_boundary_and_the_next_begins_after_it(log):
    assert play(log, "f b A f") == [
        "boundary 0",
        "opened 1",
        "micro 1.1",
        "closed 1 A",
        "boundary 1",
        "opened 2",
        "micro 2.1",
    ]


@pytest.mark.parametrize(
    ("script", "steps"),
    [
        ("f b A f b A .", ["closed 1 A", "closed 2 A"]),
        ("f b f b f b A .", ["closed 1 A"]),
        ("f b A B f b A B .", ["closed 1 A+B", "closed 2 A+B"]),
        ("f b A f b B f b A f b B .", ["closed 1 A", "closed 2 B", "closed 3 A", "closed 4 B"]),
        ("b A b A .", ["closed 1 A", "closed 2 A"]),
        ("f b (A) f b A .", ["closed 1 (A)", "closed 2 A"]),
        ("f b A f .", ["closed 1 A"]),
        ("f f f .", []),
        (".", []),
        ("A A A .", ["closed 1 A", "closed 2 A", "closed 3 A"]),
    ],
)
def test_which_calls_make_a_step(log, script, steps):
    assert closings(play(log, script)) == steps


def test_forwards_before_one_backward_share_a_micro_step(log):
    lines = play(log, "f f b f b A .")
    assert [line for line in lines if line.startswith("micro")] == ["micro 1.1", "micro 1.2"]


def test_a_call_without_micro_step_or_change_is_idle(log):
    log.weights_change = False
    assert play(log, "A f b A A .")[-2:] == ["opened 2", "idle A"]
    assert closings(log.lines) == ["closed 1 A"]


def test_a_call_that_looks_idle_passes_no_boundary(log):
    log.weights_change = False
    windows = Windows(log)
    windows.update_begins("A", looks_idle=True)
    windows.update_ends("A")
    assert log.lines == ["opened 1", "idle A"]
    windows.forward()
    assert log.lines[2:] == ["boundary 0", "opened 1", "micro 1.1"]


def test_a_forward_inside_a_call_belongs_to_its_step(log):
    windows = Windows(log)
    for _ in range(2):
        windows.update_begins("A", looks_idle=True)
        windows.forward()
        windows.backward()
        windows.backward_ends()
        windows.forward()
        windows.backward()
        windows.backward_ends()
        windows.update_ends("A")
    windows.finish()
    assert closings(log.lines) == ["closed 1 A", "closed 2 A"]
    assert log.lines.count("boundary 0") == log.lines.count("boundary 1") == 1


def test_nested_calls_are_one_call(log):
    windows = Windows(log)
    windows.forward()
    windows.update_begins("outer")
    windows.update_begins("inner")
    windows.update_ends("inner")
    windows.update_ends("outer")
    windows.finish()
    assert closings(log.lines) == ["closed 1 outer"]


def test_calls_inside_a_backward_share_its_step_even_when_repeated(log):
    windows = Windows(log)
    windows.forward()
    windows.backward()
    for name in ("A", "B", "A"):
        windows.update_begins(name)
        windows.update_ends(name)
    windows.backward_ends()
    windows.forward()
    assert closings(log.lines) == ["closed 1 A+B+A"]


def test_a_call_that_failed_leaves_the_step_open(log):
    windows = Windows(log)
    windows.forward()
    windows.update_begins("A")
    windows.update_failed()
    windows.forward()
    windows.update_begins("A")
    windows.update_ends("A")
    windows.finish()
    assert closings(log.lines) == ["closed 1 A"]


def test_closures_of_two_optimizers_make_two_steps(log):
    windows = Windows(log)
    for name in ("D", "G"):
        windows.update_begins(name)
        windows.forward()
        windows.backward()
        windows.backward_ends()
        windows.update_ends(name)
    windows.finish()
    assert closings(log.lines) == ["closed 1 D", "closed 2 G"]


def test_an_unseen_update_ends_the_step_at_the_next_forward(log):
    windows = Windows(log)
    windows.forward()
    windows.backward()
    windows.backward_ends()
    windows.unseen_update("?")
    windows.forward()
    assert closings(log.lines) == ["closed 1 ?"]
