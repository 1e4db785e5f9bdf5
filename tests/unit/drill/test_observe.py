"""What a control shows: saves, epochs, accumulation."""

from samestep.checkpoints import Unit
from samestep.drill.observe import (
    Burst,
    epoch_ends,
    facts_of,
    last_words_save,
    loss_of,
    samples_of,
    save_bursts,
)
from samestep.trace import EndRecord, Header, MicroStep, State, StepRecord, Trace, Update


def step(index, samples=None, durable=(), inputs="", losses=(1.0,)):
    micro = [MicroStep(inputs=inputs, samples=samples, loss=loss) for loss in losses]
    return StepRecord(index, State(), micro_steps=micro, durable=list(durable))


def trace(steps, rank=0, end=()):
    header = Header("control", [], 1, 0, rank=rank)
    return Trace(header, steps, end=EndRecord("exit", len(steps), 0.0, durable=list(end)))


def is_log(path):
    return path.endswith(".log")


FOLDER_UNIT = Unit("checkpoint-4", "transformers", 4, ("checkpoint-4/model.bin", "checkpoint-4/rng.pth"))


def test_a_save_is_a_change_of_a_checkpoint_and_not_of_a_log():
    steps = [
        step(1, durable=["a.log"]),
        step(2, durable=["checkpoint-2/model.bin", "a.log"]),
        step(3),
        step(4),
    ]
    bursts = save_bursts([trace(steps, end=["checkpoint-4/model.bin"])], [FOLDER_UNIT], is_log)
    assert [(burst.step, burst.paths) for burst in bursts] == [
        (2, ("checkpoint-2/model.bin",)),
        (4, ("checkpoint-4/model.bin",)),
    ]


def test_a_checkpoint_rotated_away_was_a_save_all_the_same():
    steps = [step(1), step(2, durable=["checkpoint-2/model.bin"])]
    assert [b.step for b in save_bursts([trace(steps)], [FOLDER_UNIT], is_log)] == [2]


def test_a_temporary_name_is_no_save():
    ahead = trace(
        [step(1, durable=["checkpoint-1/model.writing"]), step(2, durable=["checkpoint-1/model.writing"])]
    )
    assert save_bursts([ahead], [FOLDER_UNIT], is_log) == []


def test_files_beside_checkpoints_are_no_save():
    steps = [step(1, durable=["metrics.json"]), step(2, durable=["checkpoint-2/model.bin"])]
    assert [b.step for b in save_bursts([trace(steps)], [FOLDER_UNIT], is_log)] == [2]


def test_without_any_known_checkpoint_everything_but_logs_counts():
    assert [
        b.step for b in save_bursts([trace([step(1, durable=["x"]), step(2, durable=["y.log"])])], [], is_log)
    ] == [1]


def test_saves_of_all_ranks_are_joined():
    zero = trace([step(1, durable=["checkpoint-1/model.bin"]), step(2)])
    one = trace([step(1, durable=["checkpoint-1/rng.pth"]), step(2)], rank=1)
    (burst,) = save_bursts([zero, one], [FOLDER_UNIT], is_log)
    assert burst.paths == ("checkpoint-1/model.bin", "checkpoint-1/rng.pth")


def test_a_rank_that_runs_ahead_of_the_writer_makes_no_save_of_its_own():
    changed = ["checkpoint-1/model.bin"]
    writer = trace([step(1, durable=changed), step(2)])
    ahead = trace([step(1, durable=changed), step(2, durable=changed)], rank=1)
    assert [burst.step for burst in save_bursts([ahead, writer], [FOLDER_UNIT], is_log)] == [1]


def background(named, first, last, file="model.bin"):
    """Steps at which a folder named after one step changes over and over."""
    changed = [f"checkpoint-{named}/{file}"]
    return [step(n, durable=changed if first <= n <= last else ()) for n in range(1, last + 4)]


def test_a_save_that_goes_on_in_the_background_is_one_of_the_step_in_its_name():
    (burst,) = save_bursts([trace(background(4, 5, 12))], [FOLDER_UNIT], is_log)
    assert (burst.step, burst.done) == (4, 12)


def test_files_that_follow_in_the_background_belong_to_their_folder():
    steps = background(4, 4, 9)
    steps[9].durable = steps[10].durable = ["checkpoint-4/rng.pth"]
    (burst,) = save_bursts([trace(steps)], [FOLDER_UNIT], is_log)
    assert (burst.step, burst.done) == (4, 11)
    assert burst.paths == ("checkpoint-4/model.bin", "checkpoint-4/rng.pth")


def test_what_is_overwritten_at_every_step_is_saved_at_every_step():
    unit = Unit("last.pt", "plain", None, ("last.pt",))
    steps = [step(n, durable=["last.pt"]) for n in range(1, 7)]
    assert [burst.step for burst in save_bursts([trace(steps)], [unit], is_log)] == [1, 2, 3, 4, 5, 6]


def test_a_checkpoint_that_is_deleted_soon_was_not_written_in_the_background():
    folders = {n: [f"checkpoint-{n}/model.bin", f"checkpoint-{n - 2}/model.bin"] for n in range(2, 9, 2)}
    steps = [step(n, durable=folders.get(n, ())) for n in range(1, 9)]
    bursts = save_bursts([trace(steps)], [FOLDER_UNIT], is_log)
    assert [(burst.step, burst.done) for burst in bursts] == [(2, 0), (4, 0), (6, 0), (8, 0)]


def test_a_save_in_the_background_counts_when_it_is_done():
    facts = facts_of([trace(background(4, 5, 12))], [FOLDER_UNIT], is_log)
    assert (facts.save_steps, facts.newest_save(11), facts.newest_save(12)) == ([4], 0, 4)


def taking_turns(optimizers, seen_at):
    """Eight steps, an optimizer each; the save of step 2 is first seen at one of them."""
    steps = [step(n, durable=["store/b-2/model.bin"] if n == seen_at else ()) for n in range(1, 9)]
    for made, optimizer in zip(steps, optimizers * 8, strict=False):
        made.updates = [Update(optimizer, "Adam")]
    return facts_of([trace(steps)], [FOLDER_UNIT], is_log, {"store/b-2": 2})


def test_a_step_that_a_checkpoint_tells_is_one_turn_of_all_optimizers():
    told = taking_turns([0, 1], 4)
    assert (told.save_steps, told.steps_each) == ([4], 2)


def test_a_save_that_is_seen_late_is_still_of_the_step_that_it_tells():
    late = taking_turns([0], 4)
    assert (late.save_steps, late.steps_each, late.done(2)) == ([2], 1, 4)
    slightly = taking_turns([0, 1], 3)
    assert (slightly.save_steps, slightly.steps_each) == ([2], 1)


def test_an_epoch_ends_where_samples_come_again():
    order = [[0, 1], [2, 3], [1, 0], [3, 2], [2, 0]]
    assert epoch_ends([step(i + 1, samples) for i, samples in enumerate(order)]) == [2, 4]


def test_sampling_with_replacement_has_no_epochs():
    order = [[0, 1], [1, 2], [3, 4], [5, 6], [0, 7], [3, 9], [0, 8]]
    assert epoch_ends([step(i + 1, samples) for i, samples in enumerate(order)]) == []


def test_without_sample_indices_the_content_of_batches_tells_epochs():
    assert epoch_ends([step(i + 1, inputs=name) for i, name in enumerate("abcabc")]) == [3]


def test_a_stream_that_never_repeats_has_no_epoch_ends():
    assert epoch_ends([step(i, [i]) for i in range(1, 9)]) == []


def test_facts_count_the_steps_of_the_slowest_rank():
    known = facts_of([trace([step(1), step(2)]), trace([step(1)], rank=1)], [FOLDER_UNIT], is_log)
    assert (known.steps, known.ranks) == (1, 2)


def test_the_widest_window_is_the_accumulation():
    known = facts_of([trace([step(1, losses=(1.0, 2.0)), step(2)])], [], is_log)
    assert known.accumulation == 2


def test_a_step_without_a_loss_has_none():
    assert loss_of(step(1, losses=())) is None
    assert loss_of(step(1, losses=(1.0, 3.0))) == 2.0


def test_unknown_samples_are_shown_by_a_short_digest():
    assert samples_of(step(1, inputs="xxh3-128:0123456789abcdef")) == ["01234567"]


def cut_off(ends, started=100.0):
    """Return a trace without an end: the process left at once; its clock began at 1000 seconds since the epoch."""
    made = trace([step(number) for number in range(1, len(ends) + 1)])
    for record, end in zip(made.steps, ends, strict=True):
        record.ended = end
    made.header.started, made.header.started_unix, made.end = started, 1000.0, None
    return made


def test_a_save_behind_the_last_record_counts_for_the_steps_that_were_complete():
    made = cut_off([101.0, 102.0, 103.0])
    assert last_words_save([made], [Burst(1, ("a",))], written=1003.5) == 3


def test_a_save_that_is_recorded_or_older_is_no_other_one():
    made = cut_off([101.0, 102.0, 103.0])
    assert last_words_save([made], [Burst(1, ("a",))], written=1002.9) is None
    assert last_words_save([made], [Burst(3, ("a",))], written=1003.5) is None


def test_a_process_that_ended_on_its_own_terms_has_told_of_all_its_saves():
    made = cut_off([101.0])
    assert last_words_save([made, trace([step(1)])], [], written=2000.0) is None
    assert last_words_save([], [], written=2000.0) is None


def test_the_rank_with_the_fewest_steps_says_how_many_were_complete():
    assert last_words_save([cut_off([101.0, 102.0]), cut_off([101.0])], [], written=1003.0) == 1


def test_saves_that_tell_their_step_count_for_it_whenever_they_are_seen():
    steps = [step(number) for number in range(1, 7)]
    steps[2].durable = ["run/run.json", "run/chain/1.json", "run/bundles/b/model"]
    steps[4].durable = ["run/chain/2.json", "run/logs/a.jsonl"]
    steps[5].durable = ["run/bundles/b/model"]
    said = {"run": -1, "run/bundles/b": 2, "run/chain/2.json": 2}
    (burst,) = save_bursts([trace(steps)], [], is_log, said)
    assert (burst.step, burst.done) == (2, 5)
    assert burst.paths == ("run/bundles/b/model", "run/chain/2.json")
