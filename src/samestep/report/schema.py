"""JSON Schemas of what samestep writes, made from the very types that write it."""

from __future__ import annotations

from typing import Any

import msgspec

from samestep.cost.result import SCHEMA as COST_SCHEMA
from samestep.cost.result import CostResult
from samestep.drill.result import DRILL_SCHEMA, DrillResult
from samestep.trace import SCHEMA as TRACE_SCHEMA
from samestep.trace import EndRecord, EventRecord, Header, StepRecord

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Schema = dict[str, Any]

_TRACE_LINES = {"header": Header, "step": StepRecord, "event": EventRecord, "end": EndRecord}


def drill_schema() -> Schema:
    """Return the schema of ``drill.json``."""
    schema = msgspec.json.schema(DrillResult)
    definitions = schema["$defs"]
    definitions["DrillResult"]["properties"]["schema"] = {"const": DRILL_SCHEMA}
    tolerances = definitions["Criterion"]["properties"]["tolerances"]
    tolerances["additionalProperties"] = {"type": ["number", "null"]}
    return {"$schema": DIALECT, "$id": DRILL_SCHEMA, "title": "The result of a samestep drill", **schema}


def cost_schema() -> Schema:
    """Return the schema of ``cost.json``."""
    schema = msgspec.json.schema(CostResult)
    definitions = schema["$defs"]
    definitions["CostResult"]["properties"]["schema"] = {"const": COST_SCHEMA}
    ratios = [definitions["Flip"]["properties"][name] for name in ("ratio_low", "ratio_high")]
    for shape in (*definitions["Spread"]["properties"].values(), *ratios):
        shape["type"] = ["number", "null"]  # infinite where simulated runs were given up, or never end
    return {"$schema": DIALECT, "$id": COST_SCHEMA, "title": "The answer of samestep cost", **schema}


def trace_schema() -> Schema:
    """Return the schema of one line of a trace file."""
    references, definitions = msgspec.json.schema_components(
        _TRACE_LINES.values(), ref_template="#/$defs/{name}"
    )
    for kind, cls in _TRACE_LINES.items():
        shape = definitions[cls.__name__]
        shape["properties"] = {"kind": {"const": kind}, **shape["properties"]}
        shape["required"] = ["kind", *shape.get("required", [])]
    definitions["Header"]["properties"]["schema"] = {"const": TRACE_SCHEMA}
    return {
        "$schema": DIALECT,
        "$id": TRACE_SCHEMA,
        "title": "One line of a samestep trace",
        "oneOf": list(references),
        "$defs": definitions,
    }
