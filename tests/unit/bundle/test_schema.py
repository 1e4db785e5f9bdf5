import json
import os
from pathlib import Path

import jsonschema
import pytest

from record_samples import all_records, commit
from samestep.bundle.records import encode_record
from samestep.bundle.schema import chain_schema

PUBLISHED = Path(__file__).parents[3] / "schemas" / "chain.schema.json"
RECORDS = all_records()


def violations(tree):
    return list(jsonschema.Draft202012Validator(chain_schema()).iter_errors(tree))


def test_the_published_schema_is_current():
    text = json.dumps(chain_schema(), indent=1) + "\n"
    if os.environ.get("SAMESTEP_UPDATE_GOLDEN"):
        PUBLISHED.write_text(text, encoding="utf-8")
    assert PUBLISHED.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_validates(name):
    assert not violations(json.loads(encode_record(RECORDS[name])))


CHANGES = {
    "other version": lambda tree: tree.update(schema="samestep.chain/2"),
    "no version": lambda tree: tree.pop("schema"),
    "unknown kind": lambda tree: tree.update(kind="rumour"),
    "unknown field": lambda tree: tree.update(news=1),
    "no version of the bundle": lambda tree: tree["bundle"].pop("schema"),
    "no step": lambda tree: tree["bundle"].pop("step"),
    "unknown field of a part": lambda tree: tree["bundle"]["parts"][0].update(mode=1),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_record_of_another_shape_does_not_validate(name):
    tree = json.loads(encode_record(commit()))
    CHANGES[name](tree)
    assert violations(tree)
