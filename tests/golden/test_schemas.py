"""The published schemas are the ones the code writes by."""

import dataclasses
import json
import os
from pathlib import Path

import jsonschema
import pytest

from report_samples import SAMPLES
from samestep.report import encode_result
from samestep.report.schema import cost_schema, drill_schema, trace_schema
from samestep.trace import EndRecord, EventRecord, Header, MicroStep, Quantity, State, StepRecord, Update
from samestep.trace.records import to_plain

SCHEMAS = Path(__file__).parents[2] / "schemas"


@pytest.mark.parametrize(
    ("name", "make"), [("cost", cost_schema), ("drill", drill_schema), ("trace", trace_schema)]
)
def test_published_schema_is_current(name, make):
    path, text = SCHEMAS / f"{name}.schema.json", json.dumps(make(), indent=1) + "\n"
    if os.environ.get("SAMESTEP_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("kind", SAMPLES)
def test_results_validate(kind):
    plain = json.loads(encode_result(SAMPLES[kind]()))
    jsonschema.Draft202012Validator(drill_schema()).validate(plain)


def test_a_result_without_an_outcome_does_not_validate():
    plain = json.loads(encode_result(SAMPLES["defect"]()))
    del plain["outcome"]
    with pytest.raises(jsonschema.ValidationError, match="outcome"):
        jsonschema.Draft202012Validator(drill_schema()).validate(plain)


RECORDS = [
    Header(attempt="control-1", argv=["train.py"], pid=3, parent_pid=2, versions={"torch": "2.13"}),
    StepRecord(
        index=1,
        before=State(weights=Quantity("xxh3:00", 2, 6, Quantity.encode([1.0])), rng={"python": "xxh3:01"}),
        micro_steps=[MicroStep(inputs="xxh3:02", forwards=1, samples=[1, 2], loss=0.5)],
        updates=[Update(optimizer=0, name="Adam", groups=[{"lr": 0.1}])],
    ),
    EventRecord(name="parked", step=1, time=1.0, detail={"point": "boundary-1"}),
    EndRecord(reason="exit", steps=1, time=2.0),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_trace_lines_validate(record):
    jsonschema.Draft202012Validator(trace_schema()).validate(to_plain(record))


def test_a_trace_line_of_unknown_kind_does_not_validate():
    line = {**to_plain(dataclasses.replace(RECORDS[2])), "kind": "rumour"}
    assert list(jsonschema.Draft202012Validator(trace_schema()).iter_errors(line))
