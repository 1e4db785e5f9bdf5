"""The JSON Schema of a record of the chain, made from the very types that write it."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from samestep.bundle.checksums import CHECKSUM
from samestep.bundle.manifest import MANIFEST_SCHEMA, Manifest
from samestep.bundle.records import CHAIN_SCHEMA, Record

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def chain_schema() -> dict[str, Any]:
    """Return the schema of a record. The format asks for more: a reader checks what shapes cannot say."""
    schema = msgspec.json.schema(Record)
    definitions = schema["$defs"]
    known = {kind.__name__: CHAIN_SCHEMA for kind in get_args(Record)} | {Manifest.__name__: MANIFEST_SCHEMA}
    for name, version in known.items():
        definitions[name]["properties"]["schema"] = {"const": version}
        definitions[name]["required"] = ["schema", *definitions[name]["required"]]
    for kind in get_args(Record):
        definitions[kind.__name__]["properties"][CHECKSUM] = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
        definitions[kind.__name__]["required"].append(CHECKSUM)
    return {"$schema": _DIALECT, "$id": CHAIN_SCHEMA, "title": "A record of a run's chain", **schema}
