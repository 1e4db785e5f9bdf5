import json
import math
import time
import tracemalloc

import pytest

from record_samples import (
    ATTEMPT,
    COMMON,
    OLDER,
    all_records,
    commit,
    part,
    plain_commit,
    references,
)
from samestep.bundle import canonical
from samestep.bundle.checksums import sealed
from samestep.bundle.errors import FormatError
from samestep.bundle.manifest import Parent, Row, Timings
from samestep.bundle.records import (
    AttemptRecord,
    BundleRef,
    ReinstateRecord,
    RetireRecord,
    decode_record,
    encode_record,
    record_key,
)

RECORDS = all_records()
OLD, NEW = references()


def rewritten(record, change):
    """Return the bytes of a record after its JSON was changed by hand, spelled canonically."""
    tree = json.loads(encode_record(record))
    del tree["xxh3"]
    change(tree)
    return sealed(canonical.dump(tree, "it"))


def refused(data, number, message):
    with pytest.raises(FormatError, match=message) as caught:
        decode_record(data, number=number, what="record X")
    assert caught.value.message.startswith("record X")


@pytest.mark.parametrize("name", RECORDS)
def test_every_kind_of_record_comes_back(name):
    record = RECORDS[name]
    data = encode_record(record)
    assert decode_record(data, number=record.number, what="it") == record
    assert encode_record(decode_record(data, number=record.number, what="it")) == data


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_always_says_its_schema_and_kind(name):
    tree = json.loads(encode_record(RECORDS[name]))
    assert tree["schema"] == "samestep.chain/1"
    assert tree["kind"] in {"attempt", "commit", "retire", "remove", "reinstate"}
    if tree["kind"] == "commit":
        assert tree["bundle"]["schema"] == "samestep.bundle/1"


def test_what_is_at_its_default_is_left_out():
    bundle = json.loads(encode_record(plain_commit()))["bundle"]
    assert set(bundle) == {"schema", "id", "attempt", "step", "parts", "contract", "created"}
    assert b"null" not in encode_record(plain_commit())


def test_values_that_a_run_puts_in_keep_their_types():
    progress = {"tuple": (1, [2, (3,)]), "bytes": b"\x00", "large": -(2**127), 1.5: math.inf, "$": None}
    data = encode_record(commit(progress=progress))
    found = decode_record(data, number=5, what="it").bundle.progress
    assert found == progress
    assert type(found["tuple"][1]) is list


def test_whole_seconds_are_written_as_the_floats_they_are():
    whole = commit(timings=Timings(started=5, committing=6))
    assert decode_record(encode_record(whole), number=5, what="it") == whole
    assert b'"timings":{"committing":6.0,"started":5.0}' in encode_record(whole)


def test_the_key_of_a_record_has_ten_digits():
    assert record_key(1) == "chain/0000000001.json"
    assert record_key(1_234_567_890) == "chain/1234567890.json"


def test_a_record_of_another_version_is_refused_before_anything_else_is_looked_at():
    refused(
        b'{"news":{"$set":[]},"schema":"samestep.chain/2"}\n',
        5,
        r"format 'samestep.chain/2'; this version reads",
    )
    newer = rewritten(
        commit(), lambda tree: tree["bundle"].update(schema="samestep.bundle/9", news={"$set": 1})
    )
    refused(newer, 5, "format 'samestep.bundle/9'")
    for data in (b"{}\n", b'{"schema":null}\n', b'{"schema":["' + b"x" * 10_000 + b'"]}\n'):
        refused(data, 5, "is of format")
    for data in (b"[]\n", b"null\n", b'"samestep.chain/1"\n'):
        refused(data, 5, "not a JSON object")


MALFORMED = {
    "unknown kind": (lambda tree: tree.update(kind="rumour"), "rumour"),
    "no kind": (lambda tree: tree.pop("kind"), "kind"),
    "unknown field": (lambda tree: tree.update(news=1), "news"),
    "unknown field of the bundle": (lambda tree: tree["bundle"].update(news=1), r"news.*\$\.bundle"),
    "unknown field of a part": (lambda tree: tree["bundle"]["parts"][0].update(mode="0777"), "mode"),
    "missing field": (lambda tree: tree["bundle"].pop("step"), "step"),
    "text for a number": (lambda tree: tree["bundle"].update(step="300"), r"\$\.bundle\.step"),
    "truth for a number": (lambda tree: tree["bundle"].update(step=True), r"\$\.bundle\.step"),
    "float for a number": (lambda tree: tree["bundle"].update(step=300.5), r"\$\.bundle\.step"),
    "whole float for a number": (lambda tree: tree["bundle"].update(step=300.0), "spelled|step"),
    "number for a time": (lambda tree: tree["bundle"]["timings"].update(started=1), "spelled|started"),
    "null for a default": (lambda tree: tree["bundle"].update(progress=None), "spelled"),
    "empty for a default": (lambda tree: tree["bundle"].update(framework=""), "spelled"),
    "tuple for a list": (
        lambda tree: tree["bundle"].update(journal={"$tuple": tree["bundle"]["journal"]}),
        "spelled|journal",
    ),
    "bytes for text": (lambda tree: tree["bundle"].update(name={"$bytes": "AA=="}), r"\$\.bundle\.name"),
    "wrong number": (lambda tree: tree.update(number=6), "number is 6, and it is stored as number 5"),
    "wrong run": (lambda tree: tree.update(run="r-1"), "not the id of a run"),
    "wrong nonce": (lambda tree: tree.update(nonce="me"), "nonce is not"),
    "wrong time": (lambda tree: tree.update(written="now"), "not a time in UTC"),
    "wrong ordinal": (lambda tree: tree.update(attempt_ordinal=6), "attempt_ordinal"),
    "large number": (lambda tree: tree["bundle"].update(step={"$int": str(2**70)}), "step"),
    "later parent": (lambda tree: tree["bundle"]["parent"].update(number=5), "not an earlier record"),
    "row of a part that is not there": (
        lambda tree: tree["bundle"]["contract"]["weights"]["parts"].append("x"),
        "'x', which is no part",
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_record_changed_by_hand_is_refused(name):
    change, message = MALFORMED[name]
    refused(rewritten(commit(), change), 5, message)


def test_a_record_with_something_after_it_or_cut_short_is_refused():
    data = encode_record(commit())
    refused(data + b"{}\n", 5, "cannot be read as JSON")
    refused(data + b"\n", 5, "does not end with its checksum")
    for length in range(0, len(data), 97):
        refused(data[:length], 5, "cannot be read as JSON")


def test_a_record_that_reads_well_and_is_not_what_was_written_is_refused():
    data = encode_record(commit())
    assert data.count(b'"step":300,') == 1
    refused(data.replace(b'"step":300,', b'"step":310,'), 5, "changed after it was written")
    refused(data[:-28] + b"}\n", 5, "does not end with its checksum")
    refused(data[:-4] + b'0"}\n', 5, "changed after it was written")


def test_a_record_under_another_number_is_refused():
    refused(encode_record(commit()), 4, "number is 5, and it is stored as number 4")


WRONG = {
    "number zero": AttemptRecord(number=0, attempt=ATTEMPT, saw=0, **COMMON),
    "eleven digits": AttemptRecord(number=10**10, attempt=ATTEMPT, saw=0, **COMMON),
    "saw itself": AttemptRecord(number=3, attempt=ATTEMPT, saw=3, **COMMON),
    "attempt not counted": AttemptRecord(number=3, attempt=ATTEMPT, saw=2, **COMMON | {"attempt_ordinal": 0}),
    "resumed from later": AttemptRecord(number=3, attempt=ATTEMPT, saw=2, resumed=NEW, **COMMON),
    "terminal codes": AttemptRecord(number=3, attempt=ATTEMPT, saw=2, reason="\x1b[2J", **COMMON),
    "attempt of no name": AttemptRecord(number=3, attempt="../x", saw=2, **COMMON),
    "terminal codes in the host": AttemptRecord(number=3, attempt=ATTEMPT, saw=2, host="\x1b[2J", **COMMON),
    "terminal codes in the policy": RetireRecord(
        number=6, bundles=(OLD,), survivors=(NEW,), policy="\x9b2J", **COMMON
    ),
    "terminal codes in the excuse": ReinstateRecord(number=6, bundles=(OLD,), because="\x07", **COMMON),
    "nothing retired": RetireRecord(number=6, bundles=(), survivors=(NEW,), policy="x", **COMMON),
    "retired and kept": RetireRecord(number=6, bundles=(OLD,), survivors=(OLD,), policy="x", **COMMON),
    "retired twice": RetireRecord(number=6, bundles=(OLD, OLD), survivors=(), policy="x", **COMMON),
    "verified a stranger": RetireRecord(
        number=6, bundles=(OLD,), survivors=(NEW,), policy="x", verified=OLDER, **COMMON
    ),
    "retired no bundle": RetireRecord(
        number=6, bundles=(BundleRef(id="../x", number=2, step=0),), survivors=(), policy="x", **COMMON
    ),
    "negative step": ReinstateRecord(
        number=6, bundles=(BundleRef(id=OLDER, number=2, step=-1),), because="x", **COMMON
    ),
    "nothing reinstated": ReinstateRecord(number=6, bundles=(), because="x", **COMMON),
    "later parent": commit(parent=Parent(id=OLDER, number=9)),
    "private": commit(environment={"HOME": "/home/ada"}),
    "list for tuple in the wrong place": commit(parts=(part("../x"),)),
    "unwritable value": commit(progress={1, 2}),
    "bad text": commit(progress="\ud800"),
    "wrong type": commit(step="three"),
    "row of nothing": commit(contract={"weights": Row(state="saved", parts=("none",))}),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_reader_would_take_is_never_written(name):
    with pytest.raises(FormatError, match=r"record |of b-"):
        encode_record(WRONG[name])


def test_a_manifest_too_large_to_be_read_is_never_written():
    with pytest.raises(FormatError, match=r"would have .* bytes; at most 67,108,864 are read"):
        encode_record(commit(progress="x" * canonical.BYTES_LIMIT))


@pytest.mark.full
def test_a_hundred_thousand_parts_are_written_and_read():
    parts = tuple(part(f"layer-{number:06}.safetensors") for number in range(100_000))
    record = commit(parts=parts, contract={})
    began = time.process_time()
    data = encode_record(record)
    assert decode_record(data, number=5, what="it").bundle.parts == parts
    assert time.process_time() - began < 60


TINY = b'{"algorithm":"x","digest":"","path":"p","size":1}'
BOMBS = {
    "a million parts": [TINY] * 1_000_000,
    "a million empty objects": [b"{}"] * 1_000_000,
    "as many parts as there may be values": pytest.param([TINY] * 390_000, marks=pytest.mark.full),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_a_manifest_made_to_exhaust_its_reader_is_refused_in_bounded_memory_and_time(bomb):
    head, tail = encode_record(plain_commit()).split(b'"parts":[]')
    data = head + b'"parts":[' + b",".join(bomb) + b"]" + tail
    began = time.process_time()
    tracemalloc.start()
    try:
        refused(data, 2, "more than 2,000,000 values|malformed|at most 100,000")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 30
    assert peak < 500_000_000
