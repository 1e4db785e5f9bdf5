"""Final files that differ although every step agreed."""

from samestep.contract import Outcome, Severity
from samestep.drill.execute import add_artefacts
from samestep.drill.judging.diagnosis.records import finding
from samestep.drill.judging.judgement import Judgement
from samestep.drill.result import Observation


def judged(*findings):
    return Judgement(Observation(outcome=Outcome.SAME, resume_step=16), list(findings))


UNDRAWN = finding("rng-not-restored", "nothing draws from it", step=17, severity=Severity.NOTE)


def test_a_final_file_that_differs_makes_the_run_different():
    judgement = judged()
    add_artefacts(judgement, ["best.json"], 20)
    assert judgement.observation.outcome is Outcome.DIFFERENT
    assert [record.severity for record in judgement.findings] == [Severity.DEFECT]


def test_a_saved_generator_that_no_step_drew_from_stays_a_note():
    judgement = judged(UNDRAWN)
    add_artefacts(judgement, ["step-000020/random_states_0.pkl"], 20)
    assert judgement.observation.outcome is Outcome.SAME
    assert [record.severity for record in judgement.findings] == [Severity.NOTE, Severity.NOTE]


def test_a_saved_generator_that_differs_out_of_nowhere_is_a_defect():
    judgement = judged()
    add_artefacts(judgement, ["step-000020/random_states_0.pkl"], 20)
    assert judgement.observation.outcome is Outcome.DIFFERENT


def test_another_file_beside_an_idle_generator_still_counts():
    judgement = judged(UNDRAWN)
    add_artefacts(judgement, ["step-000020/random_states_0.pkl", "best.json"], 20)
    assert judgement.observation.outcome is Outcome.DIFFERENT
    assert "random_states" not in judgement.findings[-1].evidence
