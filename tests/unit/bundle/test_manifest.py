import math

import msgspec
import pytest

from record_samples import ATTEMPT, NEWER, OLDER, large_part, manifest, part
from samestep.bundle.digests import CHUNK_BYTES
from samestep.bundle.errors import FormatError
from samestep.bundle.manifest import (
    COMPONENTS,
    IN_MANIFEST,
    Data,
    Parent,
    Row,
    Timings,
    World,
    check_manifest,
)
from samestep.contract import Component

MODEL = part("model.safetensors", components=("weights",))
LARGE = large_part("large.bin", 3 * CHUNK_BYTES + 1)


def changed(struct, **changes):
    return msgspec.structs.replace(struct, **changes)


def of(*parts, **rows):
    return manifest(parts=parts, contract={name.replace("_", "-"): row for name, row in rows.items()})


def test_a_whole_manifest_passes():
    check_manifest(manifest())
    check_manifest(of(MODEL, LARGE))
    check_manifest(of(part("empty", b"")))


def test_its_size_is_that_of_all_parts():
    assert manifest().size == 7 + 40_000_000 + 3
    assert of().size == 0


def test_a_training_state_has_a_row_for_every_component_but_those_of_the_store():
    store = {"selection", "completeness", "rotation", "access"}
    assert set(COMPONENTS) == {str(component) for component in Component} - store
    assert set(COMPONENTS) >= IN_MANIFEST


def test_rows_that_are_open_or_absent_are_open():
    full = {name: Row(state="irrelevant", because="a test") for name in COMPONENTS}
    assert manifest(contract=full).open_rows == ()
    del full["rng"]
    full["ema"] = Row(state="open")
    assert manifest(contract=full).open_rows == ("rng", "ema")


WRONG_PARTS = {
    "negative size": (changed(MODEL, size=-1), "absurd size"),
    "absurd size": (changed(MODEL, size=1 << 51, chunks=()), "absurd size"),
    "unknown algorithm": (changed(MODEL, algorithm="md5"), "unknown algorithm: 'md5'"),
    "short digest": (changed(MODEL, digest=MODEL.digest[:-1]), "not 64 hex digits"),
    "capital digest": (changed(MODEL, digest=MODEL.digest[:-1] + "F"), "not 64 hex digits"),
    "newline in digest": (changed(MODEL, digest=MODEL.digest + "\n"), "not 64 hex digits"),
    "chunks of a small part": (
        changed(MODEL, chunks=(MODEL.digest,)),
        "has 1 chunk digests; its size makes 0",
    ),
    "chunk missing": (changed(LARGE, chunks=LARGE.chunks[:-1]), "has 3 chunk digests; its size makes 4"),
    "chunk too many": (changed(LARGE, chunks=(*LARGE.chunks, MODEL.digest)), "has 5 chunk digests"),
    "chunks swapped": (changed(LARGE, chunks=LARGE.chunks[::-1]), "does not follow from"),
    "chunk that is none": (changed(LARGE, chunks=("x" * 64, *LARGE.chunks[1:])), "not 64 hex digits"),
    "large as small": (changed(LARGE, algorithm="blake3"), "digested as blake3-16MiB"),
    "small as large": (changed(MODEL, algorithm="blake3-16MiB"), "digested as blake3"),
    "unknown component": (changed(MODEL, components=("wheels",)), "unknown component 'wheels'"),
    "component of the store": (changed(MODEL, components=("selection",)), "unknown component"),
    "component twice": (changed(MODEL, components=("ema", "ema")), "a component twice"),
    "rank out of the world": (changed(MODEL, rank=2), "not in the world"),
    "negative rank": (changed(MODEL, rank=-1), "not in the world"),
    "stored in itself": (changed(MODEL, stored_in=NEWER, share_depth=1), "stored_in its own"),
    "stored nowhere": (changed(MODEL, stored_in="../../etc", share_depth=1), "not the id of a bundle"),
    "stored elsewhere, never shared": (changed(MODEL, stored_in=OLDER), "no share_depth"),
    "absurd share depth": (changed(MODEL, share_depth=10**9), "share_depth"),
    "path escape": (changed(MODEL, path="../model"), "the part path"),
}


@pytest.mark.parametrize("name", WRONG_PARTS)
def test_a_wrong_part_is_named(name):
    wrong, message = WRONG_PARTS[name]
    with pytest.raises(FormatError, match=message):
        check_manifest(of(wrong))


def test_parts_that_would_be_one_file_are_refused():
    with pytest.raises(FormatError, match="would be one file"):
        check_manifest(of(part("Model"), part("model")))


def test_more_parts_than_the_limit_are_refused():
    many = tuple(changed(MODEL, path=f"{number}") for number in range(100_001))
    with pytest.raises(FormatError, match="parts are 100,001; at most 100,000"):
        check_manifest(of(*many))


WRONG_ROWS = {
    "saved in nothing": (Row(state="saved"), "names no part"),
    "saved in an absent part": (Row(state="saved", parts=("ema.bin",)), "'ema.bin', which is no part"),
    "saved twice": (Row(state="saved", parts=("model.safetensors",) * 2), "a part twice"),
    "rebuilt without a test": (Row(state="rebuilt", how="somehow"), "by which test"),
    "rebuilt somehow": (Row(state="rebuilt", test="tests/test_x.py"), "by which test"),
    "rebuilt and saved": (
        Row(state="rebuilt", how="a", test="b", parts=("model.safetensors",)),
        "names parts",
    ),
    "irrelevant for no reason": (Row(state="irrelevant"), "does not say why"),
    "open and saved": (Row(state="open", parts=("model.safetensors",)), "open and names parts"),
    "unknown state": (Row(state="fine"), "unknown state 'fine'"),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_a_row_that_does_not_say_enough_is_named(name):
    row, message = WRONG_ROWS[name]
    with pytest.raises(FormatError, match=f"contract.optimizer.*{message}"):
        check_manifest(of(MODEL, optimizer=row))


def test_a_row_for_an_unknown_component_is_refused():
    with pytest.raises(FormatError, match="unknown component 'wheels'"):
        check_manifest(of(MODEL, wheels=Row(state="irrelevant", because="it flies")))


@pytest.mark.parametrize("component", sorted(IN_MANIFEST))
def test_what_the_manifest_itself_carries_is_saved_without_a_part(component):
    check_manifest(of(MODEL, **{component: Row(state="saved")}))


WRONG_FIELDS = {
    "schema": ({"schema": "samestep.bundle/2"}, "schema is not samestep.bundle/1"),
    "id": ({"id": "b-1"}, "'b-1' is not the id of a bundle"),
    "id of another kind": ({"id": ATTEMPT}, "not the id of a bundle"),
    "attempt": ({"attempt": "../x"}, "not the id of an attempt"),
    "time": ({"created": "yesterday"}, "not a time in UTC"),
    "step": ({"step": -1}, "step is negative"),
    "large step": ({"step": 2**63}, "absurdly large"),
    "origin": ({"origin": "found"}, "origin is none of"),
    "parent": ({"parent": Parent(id="x", number=1)}, "not the id of a bundle"),
    "own parent": ({"parent": Parent(id=NEWER, number=1)}, "parent is the bundle itself"),
    "name": ({"name": "../checkpoint-1"}, "the part path"),
    "name with folders": ({"name": "a/b"}, "more than one name"),
    "config digest": ({"config_digest": "0123456789abcdef"}, "sha256:"),
    "world": ({"world": World(size=0)}, "world.size"),
    "large world": ({"world": World(size=10**9)}, "world.size"),
    "timings": ({"timings": Timings(started=-1.0)}, r"timings\.started"),
    "timings that are none": ({"timings": Timings(committing=math.nan)}, r"timings\.committing"),
    "journal": ({"journal": ("journal/../../x.jsonl",)}, "not the key of a segment"),
    "journal of nobody": ({"journal": ("journal/../0000000001.jsonl",)}, "not the id of an attempt"),
    "terminal codes": ({"framework": "\x1b[31mred"}, "framework has control characters"),
    "terminal codes in a row": (
        {"contract": {"rng": Row(state="irrelevant", because="\x9b2J")}},
        "contract.rng has control",
    ),
    "terminal codes in a name": ({"environment": {"\x07": "bell"}}, "environment has control"),
    "long text": ({"data": Data(rule="x" * 100_001)}, r"data\.rule is longer than 100,000"),
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_a_wrong_field_is_named(name):
    changes, message = WRONG_FIELDS[name]
    with pytest.raises(FormatError, match=message):
        check_manifest(manifest(**changes))
