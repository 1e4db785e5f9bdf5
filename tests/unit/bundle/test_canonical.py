import enum
import math
import time
import tracemalloc
from collections import OrderedDict
from types import MappingProxyType

import pytest

from samestep.bundle import canonical
from samestep.bundle.canonical import decode, encode
from samestep.bundle.errors import FormatError


class Colour(enum.StrEnum):
    RED = "red"


SPELLINGS = [
    (None, b"null"),
    (True, b"true"),
    (0, b"0"),
    (1.0, b"1.0"),
    (-0.0, b"-0.0"),
    (1e-7, b"1e-07"),
    (0.1 + 0.2, b"0.30000000000000004"),
    (2**53 - 1, b"9007199254740991"),
    (2**53, b'{"$int":"9007199254740992"}'),
    (-(2**127), b'{"$int":"-170141183460469231731687303715884105728"}'),
    (math.inf, b'{"$float":"inf"}'),
    (-math.inf, b'{"$float":"-inf"}'),
    (b"\x00\xff", b'{"$bytes":"AP8="}'),
    ((1, (2,)), b'{"$tuple":[1,{"$tuple":[2]}]}'),
    ("é\n\x7f\u2028\U0001f600", '"é\\n\x7f\u2028\U0001f600"'.encode()),
    ({"b": [], "a": {}}, b'{"a":{},"b":[]}'),
    ({"\U0001f600": 1, "\uffee": 2}, '{"\uffee":2,"\U0001f600":1}'.encode()),
    ({2: "two", 10: "ten"}, b'{"$map":[[10,"ten"],[2,"two"]]}'),
    ({"$x": 1}, b'{"$map":[["$x",1]]}'),
    ({(1, "a"): None, None: 1.5}, b'{"$map":[[null,1.5],[{"$tuple":[1,"a"]},null]]}'),
]


@pytest.mark.parametrize(("value", "spelling"), SPELLINGS, ids=lambda item: ascii(item)[:40])
def test_a_value_has_one_spelling_and_comes_back(value, spelling):
    assert encode(value) == spelling + b"\n"
    back = decode(spelling + b"\n", what="it")
    assert back == value
    assert type(back) is type(value)


def test_nan_and_the_sign_of_zero_come_back():
    assert math.isnan(decode(encode(math.nan), what="it"))
    assert math.copysign(1, decode(encode(-0.0), what="it")) == -1


def test_subclasses_are_written_as_what_they_are_made_of():
    assert (
        encode([Colour.RED, OrderedDict(b=1, a=2), enum.IntEnum("N", "ONE")["ONE"]])
        == b'["red",{"a":2,"b":1},1]\n'
    )


@pytest.mark.parametrize(
    ("value", "wrong"),
    [
        ({"a": [object()]}, r"builtins.object at \$\.a\[0\]"),
        ({"a": {1, 2}}, r"builtins.set at \$\.a"),
        ([MappingProxyType({})], "mappingproxy"),
        (bytearray(b"x"), "bytearray"),
        ("\ud800", "not valid Unicode"),
        ({"\udcff": 1}, "not valid Unicode"),
        (10**600, "more than 600 digits"),
        ({math.nan: 1, float("nan"): 2}, "spelled alike"),
    ],
    ids=["object", "set", "mapping", "bytearray", "surrogate", "surrogate-key", "number", "two-nans"],
)
def test_what_cannot_be_written_is_named_with_its_place(value, wrong):
    with pytest.raises(FormatError, match=wrong):
        encode(value)


def nested(depth, inner=1):
    for _ in range(depth):
        inner = [inner]
    return inner


def test_64_levels_are_written_and_read_and_65_are_not():
    assert decode(encode(nested(64)), what="it") == nested(64)
    assert decode(encode(nested(64, math.inf)), what="it") == nested(64, math.inf)
    with pytest.raises(FormatError, match="nested more than 64 deep"):
        encode(nested(65))
    with pytest.raises(FormatError, match="nested more than 64 deep"):
        decode(b"[" * 65 + b"]" * 65 + b"\n", what="it")


def test_a_value_that_holds_itself_is_refused():
    value = []
    value.append(value)
    with pytest.raises(FormatError, match="nested more than"):
        encode(value)


OTHER_SPELLINGS = [
    b"1",
    b"1\n\n",
    b" 1\n",
    b"[1, 2]\n",
    b'{"b":1,"a":2}\n',
    b"1E5\n",
    b"1e999\n",
    b"-0\n",
    b"1.10\n",
    b'"\\u00e9"\n',
    b'"\\/"\n',
    b'{"$int":"5"}\n',
    b'{"$bytes":"AP9="}\n',
    b'{"$map":[]}\n',
    b'{"$map":[["a",1]]}\n',
    b'{"$map":[[2,1],[1,1]]}\n',
    b'{"$map":[[1,1],[1.0,2]]}\n',
    b'{"$map":[[1,1],[true,2]]}\n',
]


@pytest.mark.parametrize("data", OTHER_SPELLINGS)
def test_another_spelling_of_a_value_is_refused(data):
    with pytest.raises(FormatError, match="not spelled canonically"):
        decode(data, what="it")


MALFORMED = [
    (b"", "cannot be read as JSON"),
    (b"{", "cannot be read as JSON"),
    (b"1 2\n", "cannot be read as JSON"),
    (b"'a'\n", "cannot be read as JSON"),
    (b"\xff\n", "not UTF-8 at byte 0"),
    (b"\xef\xbb\xbf1\n", "BOM"),
    (b"\xed\xa0\x80\n", "not UTF-8"),
    (b'"\\ud800"\n', "not valid Unicode"),
    (b'"\x00"\n', "control character"),
    (b'{"a":1,"a":1}\n', "'a' is given twice"),
    (b"NaN\n", "NaN needs the tag"),
    (b"-Infinity\n", "-Infinity needs the tag"),
    (b"9007199254740992\n", "needs the tag"),
    (b"1" * 100_000 + b"\n", "needs the tag"),
    (b'{"$float":"NaN"}\n', r"malformed \$float"),
    (b'{"$float":1.5}\n', r"malformed \$float"),
    (b'{"$int":5}\n', r"malformed \$int"),
    (b'{"$int":"0x10"}\n', r"malformed \$int"),
    (b'{"$int":"+9007199254740992"}\n', r"malformed \$int"),
    ('{"$int":"٩٠٠٧١٩٩٢٥٤٧٤٠٩٩٢"}\n'.encode(), r"malformed \$int"),
    (b'{"$int":"' + b"9" * 100_000 + b'"}\n', r"malformed \$int"),
    (b'{"$bytes":"A"}\n', r"malformed \$bytes"),
    (b'{"$bytes":"A P8="}\n', r"malformed \$bytes"),
    ('{"$bytes":"é"}\n'.encode(), r"malformed \$bytes"),
    (b'{"$tuple":{}}\n', r"malformed \$tuple"),
    (b'{"$map":[[1]]}\n', r"malformed \$map"),
    (b'{"$map":[[[],1]]}\n', r"malformed \$map at \$\[0\]"),
    (b'{"$set":[]}\n', r"unknown tag '\$set'"),
    (b'{"$int":"9007199254740992","$x":1}\n', "unknown tag"),
    (b'{"a":1,"$int":"9007199254740992"}\n', "unknown tag"),
]


@pytest.mark.parametrize(("data", "wrong"), MALFORMED, ids=lambda item: ascii(item)[:30])
def test_what_is_no_canonical_json_is_refused_in_a_short_message(data, wrong):
    with pytest.raises(FormatError, match=wrong) as caught:
        decode(data, what="record 7")
    assert caught.value.message.startswith("record 7 ")
    assert len(caught.value.message) < 300


def test_the_message_shows_where_the_spelling_differs():
    with pytest.raises(FormatError, match=r"from byte 8 on: 'e5\]\\n' should be '00000\.0\]\\n'"):
        decode(b'["abc",1e5]\n', what="it")


HOSTILE = {
    "deep": b"[" * 10_000_000,
    "deep objects": b'{"a":' * 1_000_000,
    "empty objects": b"[" + b"{}," * 3_000_000 + b"{}]\n",
    "one long number": b"0." + b"1" * 20_000_000 + b"\n",
    "one long text with a bad end": b'"' + b"a" * 20_000_000,
    "late difference": b'"' + b"a" * 20_000_000 + b'" \n',
    "many pairs": b'{"$map":[' + b"[1,1]," * 100_000 + b"[1,1]]}\n",
    "many escapes": b'"' + b"\\u0061" * 3_000_000 + b'"\n',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_cost_little_time_and_memory(name):
    data = HOSTILE[name]
    began = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(FormatError):
            decode(data, what="it")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 20
    assert peak < 8 * len(data) + 200_000_000


def test_more_bytes_than_the_limit_are_not_even_looked_at():
    with pytest.raises(FormatError, match="has 11 bytes; at most 10"):
        decode(b'"aaaaaaaaa"', what="it", limit=10)
    with pytest.raises(FormatError, match="at most 67,108,864"):
        decode(bytes(canonical.BYTES_LIMIT + 1), what="it")


@pytest.mark.parametrize("depth", [65, 200, 450, 700, 990, 5000])
@pytest.mark.parametrize(
    "around", [("[", "]"), ('{"a":', "}"), ('{"$tuple":[', "]}"), ('{"$map":[[1,', "]]}")]
)
def test_nesting_is_refused_at_every_depth_whatever_nests(depth, around):
    before, after = around
    with pytest.raises(FormatError, match="nested more than 64 deep"):
        decode(f"{before * depth}1{after * depth}\n".encode(), what="it")


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,), lambda v: {1: v}], ids="ldtm"
)
def test_whatever_is_written_at_the_deepest_level_can_be_read(wrap):
    value, levels = 1, 0
    while True:
        try:
            data = encode(value)
        except FormatError:
            break
        assert decode(data, what="it") == value
        value, levels = wrap(value), levels + 1
    assert 64 // 4 < levels <= 65


def test_more_values_than_the_limit_are_refused_before_they_are_read():
    with pytest.raises(FormatError, match="holds more than 2,000,000 values"):
        decode(b"[" + b"{}," * 1_000_000 + b"{}]\n", what="it")
