"""Which checkpoints a state holds bit by bit."""

from __future__ import annotations

from crash_scripts import Script, empty, states_of
from samestep.crash.replay import replay
from samestep.crash.whole import Generation, wholeness


def saved(*steps):
    script = Script()
    for step in steps:
        script.mark(step).mkdir(f"step-{step}")
        for name in ("model", "optimizer"):
            script.file_of(f"step-{step}/{name}.pt", b"%s %d" % (name.encode(), step))
    return script


def generations(script, *steps):
    end = replay(script.recording(), empty())
    return [Generation.of(end, f"step-{step}", step) for step in steps]


def test_the_newest_whole_unit_of_each_prefix_is_known():
    script = saved(1, 2)
    units = generations(script, 1, 2)
    found = [wholeness(state.image, units) for state in states_of(script, "kill").states]
    assert [each.newest for each in found] == [1] * (len(found) - 1) + [2]
    assert not found[0].torn
    assert found[2].torn[0].missing == ("step-2/optimizer.pt",)
    assert found[2].torn[0].damaged == ("step-2/model.pt",)


def test_nothing_whole_is_none():
    script = saved(1)
    assert wholeness(empty(), generations(script, 1)).newest is None


def overwritten():
    script = Script().mark(1)
    for name in ("model", "optimizer", "config"):
        script.file_of(f"{name}.pt", b"same" if name == "config" else b"%s-1" % name.encode())
    ends = [replay(script.recording(), empty())]
    script.mark(2)
    for name in ("model", "optimizer", "config"):
        script.open(f"{name}.pt").truncate(f"{name}.pt")
        script.write(f"{name}.pt", b"same" if name == "config" else b"%s-2" % name.encode(), 0).close(
            f"{name}.pt"
        )
    ends.append(replay(script.recording(), empty()))
    units = [
        Generation.of(end, ".", step, ["model.pt", "optimizer.pt", "config.pt"])
        for step, end in enumerate(ends, 1)
    ]
    return script, units


def test_a_unit_overwritten_in_place_mixes_two_saves_on_the_way():
    script, units = overwritten()
    found = {state.last: wholeness(state.image, units) for state in states_of(script, "machine-lost").states}
    mixed = found["write to model.pt"]
    assert mixed.whole == ()
    assert mixed.mixed[0].files == {1: ("optimizer.pt",), 2: ("model.pt",)}
    assert mixed.torn[0].damaged == ()
    assert found["nothing of this save"].whole == ((".", 1),)
    assert found["write to optimizer.pt"].whole == ((".", 2),)


def test_an_emptied_file_is_damaged():
    script, units = overwritten()
    state = next(s for s in states_of(script, "kill").states if s.last == "truncate optimizer.pt to 0 bytes")
    torn = wholeness(state.image, units).torn[0]
    assert (torn.damaged, torn.missing) == (("optimizer.pt",), ())


def test_leftovers_and_logs_do_not_make_a_unit_torn():
    script = saved(1)
    units = generations(script, 1)
    script.file_of("step-1/.tmpAbCd12", b"x").file_of("step-1/train.log", b"x")
    assert wholeness(replay(script.recording(), empty()), units).newest == 1


def test_a_file_of_a_later_save_in_an_older_one_is_a_mixture():
    script = Script().mark(1).mkdir("s").file_of("s/a.pt", b"1")
    first = Generation.of(replay(script.recording(), empty()), "s", 1)
    script.mark(3).file_of("s/b.pt", b"2").open("s/a.pt").write("s/a.pt", b"2", 0)
    second = Generation.of(replay(script.recording(), empty()), "s", 3)
    between = states_of(script, "machine-lost").states
    found = [wholeness(state.image, [first, second]) for state in between]
    assert [each.newest for each in found] == [1, None, None, 3]
    assert found[2].mixed[0].files == {1: ("s/a.pt",), 3: ("s/b.pt",)}
