"""Records of the chain: what is written comes back, what was tampered with is refused or spells the same."""

from __future__ import annotations

import json
import math
import random
import string

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from record_samples import all_records, commit, large_part, part
from samestep.bundle.canonical import decode, encode
from samestep.bundle.checksums import sealed
from samestep.bundle.digests import CHUNK_BYTES, digest_content
from samestep.bundle.errors import FormatError
from samestep.bundle.identity import check_id
from samestep.bundle.manifest import COMPONENTS, Row, Timings, World
from samestep.bundle.paths import check_part_path, check_part_paths, part_key, part_path
from samestep.bundle.privacy import private_removed
from samestep.bundle.records import CommitRecord, decode_record, encode_record
from samestep.bundle.storage.contents import BufferContent

RECORDS = all_records()
WRITTEN = {name: encode_record(record) for name, record in RECORDS.items()}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | texts | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=2).map(tuple),
    max_leaves=3,
)
values = st.recursive(
    keys | st.floats() | st.integers(-(2**200), 2**200) | texts.map("$".__add__),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=25,
)


def alike(one, other):
    """Tell whether two values are equal in every type, NaN included; a dict's order does not count."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return (math.isnan(one) and math.isnan(other)) or (
            one == other and math.copysign(1, one) == math.copysign(1, other)
        )
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    return one == other


@given(values)
@settings(max_examples=300)
def test_every_value_comes_back_with_its_types_and_spells_the_same_again(value):
    data = encode(value)
    back = decode(data, what="it")
    assert alike(back, value)
    assert encode(back) == data


@given(values, st.randoms())
def test_the_order_of_keys_does_not_change_the_spelling(value, chance):
    assert encode(shuffled(value, chance)) == encode(value)


def shuffled(value, chance):
    if isinstance(value, list | tuple):
        return type(value)(shuffled(item, chance) for item in value)
    if isinstance(value, dict):
        entries = [(key, shuffled(item, chance)) for key, item in value.items()]
        chance.shuffle(entries)
        return dict(entries)
    return value


@given(values)
def test_the_spelling_is_json_that_every_reader_can_read(value):
    data = encode(value)
    assert data.endswith(b"\n")
    assert data.count(b"\n") == 1
    json.loads(data, parse_constant=pytest.fail)


tokens = st.sampled_from(['{"$map":', "[", "]", "}", '"$int"', ":", "1", ",", '"a"'])
nearly_json = st.lists(tokens).map(lambda found: "".join(found).encode())


@given(st.binary(max_size=60) | texts.map(str.encode) | nearly_json)
@settings(max_examples=300)
def test_bytes_of_any_kind_are_refused_or_are_the_spelling_of_what_they_mean(data):
    try:
        value = decode(data, what="it")
    except FormatError:
        return
    assert encode(value) == data


names = st.text(string.ascii_lowercase + "é日. =-", min_size=1, max_size=8)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
components = st.sampled_from(COMPONENTS)


def allowed(path):
    try:
        return bool(check_part_path(path))
    except FormatError:
        return False


def apart(found):
    try:
        check_part_paths(item.path for item in found)
    except FormatError:
        return False
    return True


small_parts = st.builds(
    part,
    paths.filter(allowed),
    st.binary(max_size=20),
    components=st.lists(components, unique=True, max_size=2).map(tuple),
    rank=st.none() | st.integers(0, 3),
    share_depth=st.integers(0, 8),
)
large_parts = st.builds(large_part, paths.filter(allowed), st.integers(CHUNK_BYTES + 1, 5 * CHUNK_BYTES))
part_lists = st.lists(small_parts | large_parts, max_size=5).map(tuple).filter(apart)
reasons = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=20)
rows = st.builds(Row, state=st.just("rebuilt"), how=reasons, test=reasons) | st.builds(
    Row, state=st.sampled_from(["irrelevant", "open"]), because=reasons
)
seconds = st.none() | st.floats(0, 1e10)


@st.composite
def commits(draw):
    found = draw(part_lists)
    contract = draw(st.dictionaries(components, rows, max_size=4))
    if found:
        contract["weights"] = Row(state="saved", parts=(found[0].path,))
    return commit(
        parts=found,
        contract=contract,
        step=draw(st.integers(0, 2**53 - 1)),
        progress=draw(values),
        code=draw(st.dictionaries(reasons, reasons, max_size=2)),
        environment=draw(st.dictionaries(reasons, reasons, max_size=2)),
        world=World(size=draw(st.integers(4, 9)), layout=draw(values)),
        timings=Timings(started=draw(seconds), committing=draw(seconds)),
    )


@given(commits())
@settings(max_examples=150)
def test_every_commit_comes_back_and_spells_the_same_again(record):
    record = msgspec.structs.replace(record, bundle=private_removed(record.bundle))
    data = encode_record(record)
    back = decode_record(data, number=record.number, what="it")
    assert encode_record(back) == data
    assert back.bundle.parts == record.bundle.parts
    assert alike(back.bundle.progress, record.bundle.progress)


def unsealed(data):
    """What a record says, without its checksum."""
    return data[: data.rindex(b',"xxh3"')] + b"}\n"


def taken_or_refused(data, number):
    """Tell whether a changed record is still taken; what is taken must spell exactly what was read.

    What is private is read, because rules get stricter with time, and never written.
    """
    try:
        record = decode_record(data, number=number, what="it")
    except FormatError:
        return False
    if isinstance(record, CommitRecord) and private_removed(record.bundle) != record.bundle:
        with pytest.raises(FormatError, match="secret or an absolute path"):
            encode_record(record)
    else:
        assert encode_record(record) == data
    return True


@pytest.mark.parametrize("name", RECORDS)
def test_every_flipped_bit_is_refused(name):
    data, chance = WRITTEN[name], random.Random(name)
    bits = chance.sample(range(8 * len(data)), min(1000, 8 * len(data)))
    for bit in bits:
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        assert not taken_or_refused(bytes(flipped), RECORDS[name].number), bit


@pytest.mark.parametrize("name", RECORDS)
def test_every_flipped_bit_under_a_right_checksum_is_refused_or_makes_another_record(name):
    data, chance = unsealed(WRITTEN[name]), random.Random(name)
    for bit in chance.sample(range(8 * (len(data) - 2)), min(1000, 8 * (len(data) - 2))):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        resealed = sealed(bytes(flipped))
        if taken_or_refused(resealed, RECORDS[name].number):
            assert decode_record(resealed, number=RECORDS[name].number, what="it") != RECORDS[name]


PIECES = [b"", b"0", b"-1", b"1e9", b"null", b"{}", b"[]", b'""', b",", b'"', b"}", b'{"$bytes":"AA=="}']
pieces = st.sampled_from([*PIECES, b"\xff", b"\n", b"../"])


@given(st.sampled_from(sorted(RECORDS)), st.data())
@settings(max_examples=300)
def test_a_record_with_something_cut_out_doubled_or_put_in_is_refused_or_spells_the_same(name, data):
    written = unsealed(WRITTEN[name])
    begin = data.draw(st.integers(0, len(written)))
    end = data.draw(st.integers(begin, min(len(written), begin + 60)))
    put_in = data.draw(pieces | st.just(written[begin:end] * 2))
    taken_or_refused(sealed(written[:begin] + put_in + written[end:]), RECORDS[name].number)


def places(tree, path=()):
    """Yield where every value of a JSON tree stands."""
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


replacements = values | st.sampled_from(
    [
        -1,
        2**62,
        1.0,
        "",
        "..",
        "/etc/passwd",
        "a\x00b",
        "$",
        [],
        {},
        None,
        True,
        [[]],
        "open",
        "blake3",
        10**30,
    ]
)


@given(st.sampled_from(sorted(RECORDS)), replacements, st.data())
@settings(max_examples=400)
def test_a_record_with_any_value_replaced_is_refused_or_spells_the_same(name, value, data):
    tree = decode(unsealed(WRITTEN[name]), what="it")
    *path, last = data.draw(st.sampled_from([path for path in places(tree) if path]))
    inner = tree
    for key in path:
        inner = inner[key]
    inner[last] = value
    taken_or_refused(sealed(encode(tree)), RECORDS[name].number)


@given(st.text(max_size=30) | paths)
@settings(max_examples=300)
def test_a_path_is_refused_or_stays_below_its_bundle_and_comes_back_from_its_key(path):
    if not allowed(path):
        return
    bundle = "b-20260201t000200000-00000000b2"
    key = part_key(bundle, path)
    assert part_path(bundle, key) == path
    assert key.startswith(f"bundles/{bundle}/")
    assert not any(name.startswith(".") or not name for name in key.split("/"))


@given(st.text(max_size=40))
@settings(max_examples=300)
def test_a_text_is_no_id_unless_it_could_be_a_name_of_a_folder(text):
    try:
        check_id(text, "bundle")
    except FormatError:
        return
    assert set(text) <= set(string.ascii_lowercase + string.digits + "-")


@given(st.integers(0, 3 * CHUNK_BYTES + 7), st.integers(1, 4))
@settings(max_examples=15)
def test_the_digest_does_not_depend_on_the_number_of_threads(size, threads):
    content = BufferContent(random.Random(size).randbytes(size))
    assert digest_content(content, threads) == digest_content(content)
