"""Laws of judging: right resumes pass, one known damage is named exactly, and nothing makes the judge fail."""

from __future__ import annotations

import copy

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from made_traces import batch, blur, content, control, digest, resumed, samples_at, spoil_results, state_at
from samestep.contract import FINDINGS, Outcome, Severity
from samestep.drill.judging import criterion as criteria
from samestep.drill.judging.judge import judge
from samestep.drill.judging.judgement import Case, Ending, Reference
from samestep.drill.result import Criterion, Expectation
from samestep.trace import Average, EndRecord, Header, MicroStep, Quantity, State, StepRecord, Trace, Update

EXACT = Criterion(kind="exact", rule="")
CONTROL = control()
SAVES = st.integers(1, 16)
EXPECTED = Expectation(outcomes=[Outcome.SAME])


def judged(traces, step, criterion=EXACT, reference=None, ending=None):
    case = Case("cut", cut_step=step + 1, whole_steps=[step] if step else [])
    return judge(
        reference or Reference([CONTROL]),
        traces,
        ending or Ending(hit_step_limit=True),
        case,
        EXPECTED,
        criterion,
    )


def defects(judgement):
    return {record.slug for record in judgement.findings if record.severity is Severity.DEFECT}


# One damage each; every function changes a right continuation and returns the findings that must be named.


def lose_weights(trace, step):
    trace.steps[0].before.weights = state_at(0).weights
    spoil_results(trace)
    return {"weights-not-restored"}


def lose_optimizer(trace, step):
    trace.steps[0].before.optimizer = {}
    spoil_results(trace)
    return {"optimizer-reset"}


def lose_one_moment(trace, step):
    del trace.steps[0].before.optimizer["0/exp_avg"]
    spoil_results(trace)
    return {"optimizer-partly-reset"}


def lose_schedule(trace, step):
    for place, record in enumerate(trace.steps):
        record.before.schedules, record.before.groups = state_at(place).schedules, state_at(place).groups
        record.updates[0].groups = state_at(place).groups[0]
    spoil_results(trace)
    return {"schedule-restarted"}


def lose_scaler(trace, step):
    for record in trace.steps:
        record.before.scalers = [{"scale": 1.0, "growth_tracker": 77}]
    return {"scaler-reset"}


def lose_average(trace, step):
    for record in trace.steps:
        record.before.averages[0].content = content([8.0] * 8)
    return {"ema-lost"}


def lose_generator(trace, step):
    for place, record in enumerate(trace.steps):
        record.before.rng["torch"] = record.micro_steps[0].rng["torch"] = digest("another seed", place)
    spoil_results(trace)
    return {"rng-not-restored"}


def lose_buffers(trace, step):
    for record in trace.steps:
        record.before.buffers = content([-1.0, -1.0], 1)
    return {"buffers-lost"}


def reorder_data(trace, step):
    for place, record in enumerate(trace.steps):
        samples = samples_at(600 + place)
        record.micro_steps[0].samples, record.micro_steps[0].inputs = samples, batch(samples)
    spoil_results(trace)
    return {"data-order-changed"}


def skip_data(trace, step):
    for place, record in enumerate(trace.steps):
        samples = samples_at(step + place + 1)
        record.micro_steps[0].samples, record.micro_steps[0].inputs = samples, batch(samples)
    spoil_results(trace)
    return {"data-skipped"}


def miscount(trace, step):
    for record in trace.steps:
        record.values["self.global_step"] += 3
    return {"progress-wrong"}


DAMAGES = [
    lose_weights,
    lose_optimizer,
    lose_one_moment,
    lose_schedule,
    lose_scaler,
    lose_average,
    lose_generator,
    lose_buffers,
    reorder_data,
    skip_data,
    miscount,
]


@given(step=st.integers(0, 19), verify=st.integers(1, 6))
def test_right_resume_is_always_the_same(step, verify):
    judgement = judged([resumed(CONTROL, step, verify)], step)
    assert (judgement.observation.outcome, judgement.findings) == (Outcome.SAME, [])
    assert judgement.observation.resume_step == step


@given(step=SAVES, verify=st.integers(2, 6), damage=st.sampled_from(DAMAGES))
def test_one_damage_is_named_and_nothing_else(step, verify, damage):
    trace = resumed(CONTROL, step, verify)
    named = damage(trace, step)
    judgement = judged([trace], step)
    assert defects(judgement) == named
    assert judgement.observation.outcome is Outcome.DIFFERENT


@given(step=SAVES, one=st.sampled_from(DAMAGES), other=st.sampled_from(DAMAGES))
def test_two_damages_hide_neither_component(step, one, other):
    both = {one, other}
    if len(both) < 2 or both in ({reorder_data, skip_data}, {lose_optimizer, lose_one_moment}):
        return  # they damage the same thing
    if both == {lose_weights, miscount}:
        return  # no content is left to hold against the counter
    trace = resumed(CONTROL, step)
    slugs = one(trace, step) | other(trace, step)
    expected = {c for slug in slugs for c in FINDINGS[slug].components}
    if lose_weights in both:
        expected -= set(FINDINGS["buffers-lost"].components) - set(
            FINDINGS["weights-not-restored"].components
        )
    assert expected <= {c for record in judged([trace], step).findings for c in record.components}


@given(step=SAVES, damage=st.sampled_from(DAMAGES), order=st.permutations([0, 1, 2]))
def test_order_of_ranks_does_not_matter(step, damage, order):
    controls = [control(rank=rank, world_size=3) for rank in range(3)]
    traces = [resumed(one, step) for one in controls]
    damage(traces[1], step)
    straight = judged(traces, step, reference=Reference(controls))
    mixed = judged(
        [traces[place] for place in order], step, reference=Reference([controls[place] for place in order])
    )
    assert straight == mixed
    assert all(record.rank == 1 for record in straight.findings if record.slug != "world-changed")


@given(step=SAVES, seeds=st.tuples(*[st.integers(0, 10**6)] * 3), size=st.floats(1e-9, 1e-6))
def test_noise_within_the_controls_passes(step, seeds, size):
    first, second, third = (blur(CONTROL, size, seed + place) for place, seed in enumerate(seeds))
    criterion = criteria.derive([first], [second])
    judgement = judged([resumed(third, step)], step, criterion, Reference([second], followers=[first]))
    assert (defects(judgement), judgement.observation.outcome) == (set(), Outcome.SAME)


@given(step=SAVES, seed=st.integers(0, 10**6), damage=st.sampled_from(DAMAGES))
def test_damage_shows_through_noise(step, seed, damage):
    first, second, third = (blur(CONTROL, 1e-7, seed + place) for place in range(3))
    criterion = criteria.derive([first], [second])
    trace = resumed(third, step)
    named = damage(trace, step)
    assert named <= defects(judged([trace], step, criterion, Reference([second], followers=[first])))


# Arbitrary well-formed traces.

NUMBERS = st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=3)
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-3, 30)
    | st.floats()
    | st.text(max_size=3)
    | st.lists(st.integers())
)
NAMED = st.dictionaries(
    st.sampled_from(["step", "lr", "best", "last_epoch", "scale", "x"]), PLAIN, max_size=3
)
DIGESTS = st.sampled_from(["", "xxh3:1", "xxh3:2", "sample:1"])
QUANTITIES = st.builds(Quantity, DIGESTS, st.integers(0, 2), st.integers(0, 4), NUMBERS.map(Quantity.encode))
RNG = st.dictionaries(st.sampled_from(["python", "torch"]), DIGESTS, max_size=2)
STATES = st.builds(
    State,
    weights=st.none() | QUANTITIES,
    buffers=st.none() | QUANTITIES,
    optimizer=st.dictionaries(
        st.sampled_from(["0/step", "0/exp_avg", "1/momentum_buffer"]), QUANTITIES, max_size=3
    ),
    groups=st.lists(st.lists(NAMED, max_size=2), max_size=2),
    schedules=st.lists(NAMED, max_size=2),
    scalers=st.lists(NAMED, max_size=1),
    averages=st.lists(
        st.builds(Average, st.just("a"), QUANTITIES, st.none() | st.integers(0, 3)), max_size=2
    ),
    rng=RNG,
)
MICROS = st.builds(
    MicroStep,
    inputs=DIGESTS,
    samples=st.none() | st.lists(st.integers(0, 3), max_size=2),
    loss=st.none() | st.floats(),
    rng=RNG,
)
STEPS = st.builds(
    StepRecord,
    index=st.integers(1, 5),
    before=STATES,
    micro_steps=st.lists(MICROS, max_size=2),
    updates=st.lists(
        st.builds(Update, st.integers(-1, 1), st.just("SGD"), groups=st.lists(NAMED, max_size=2)), max_size=2
    ),
    weights_after=st.none() | QUANTITIES,
    values=NAMED,
    generators=RNG,
)
TRACES = st.builds(
    Trace,
    st.builds(Header, st.just("a"), st.just([]), st.just(1), st.just(0), rank=st.integers(0, 1)),
    st.lists(STEPS, max_size=5),
    end=st.none()
    | st.builds(EndRecord, st.sampled_from(["exit", "step-limit"]), st.integers(0, 5), st.just(0.0), STATES),
)
CASES = st.builds(
    Case,
    st.sampled_from(["cut", "damage", "transfer", "restart", "crash"]),
    cut_step=st.none() | st.integers(0, 5),
    whole_steps=st.lists(st.integers(0, 5), max_size=2),
    damaged=st.lists(st.sampled_from(["ckpt-1/optimizer.pt", "x"]), max_size=1),
    damaged_step=st.none() | st.integers(0, 5),
    flipped=st.booleans(),
    foreign_steps=st.lists(st.integers(0, 5), max_size=1),
    finished=st.booleans(),
    changed=st.sampled_from(["", "--width 2"]),
)
ENDINGS = st.builds(
    Ending,
    exit_code=st.none() | st.integers(0, 2),
    timed_out=st.booleans(),
    log_tail=st.text(max_size=30),
    hit_step_limit=st.booleans(),
    booted=st.integers(0, 1),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(
    controls=st.lists(TRACES, max_size=2),
    followers=st.lists(TRACES, max_size=2),
    traces=st.lists(TRACES, max_size=2),
    case=CASES,
    ending=ENDINGS,
    expected=st.none() | st.integers(0, 5),
)
def test_judging_never_fails_and_never_calls_an_unproven_run_the_same(
    *, controls, followers, traces, case, ending, expected
):
    reference = Reference(controls, epoch_ends=[2], followers=followers)
    criterion = criteria.derive(controls, followers)
    criteria.too_noisy(criterion, controls, followers)
    expectation = Expectation(outcomes=[Outcome.SAME], resume_step=expected)
    judgement = judge(reference, copy.deepcopy(traces), ending, case, expectation, criterion)
    seen = judgement.observation
    assert seen.summary
    if seen.outcome is Outcome.SAME:
        assert not defects(judgement)
        assert seen.resume_step is not None
        assert seen.steps_verified or not any(trace.steps for trace in traces)
