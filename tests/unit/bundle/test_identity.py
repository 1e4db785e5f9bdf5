import re

import pytest

from samestep.bundle.errors import FormatError
from samestep.bundle.identity import (
    check_id,
    check_time,
    new_attempt_id,
    new_bundle_id,
    new_nonce,
    new_run_id,
    utc_text,
)

MAKERS = {"run": new_run_id, "attempt": new_attempt_id, "bundle": new_bundle_id}
MOMENT = 1769903999.123


@pytest.mark.parametrize("kind", MAKERS)
def test_a_new_id_is_one_of_its_kind_and_of_no_other(kind):
    made = MAKERS[kind]()
    assert check_id(made, kind) == made
    for other in MAKERS.keys() - {kind}:
        with pytest.raises(FormatError, match=other):
            check_id(made, other)


def test_an_id_says_when_it_was_made_in_utc():
    assert re.fullmatch(r"b-20260131t235959123-[0-9a-f]{10}", new_bundle_id(MOMENT))


def test_ids_sort_by_time_and_differ_within_a_millisecond():
    times = [0, 1, 999_999_999.9, MOMENT, MOMENT + 0.002, 4e9]
    ids = [new_attempt_id(time) for time in times]
    assert ids == sorted(ids)
    assert len({new_run_id(MOMENT) for _ in range(1000)}) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "b",
        "b-20260131t235959123-012345678",
        "b-20260131t235959123-0123456789\n",
        "b-20260131t235959123-01234567899",
        "B-20260131t235959123-0123456789",
        "b-20260131T235959123-0123456789",
        "b-20260131t235959123-012345678G",
        "b-20261331t235959123-0123456789",
        "b-20260230t000000000-0123456789",
        "b-20260131t246060123-0123456789",
        "b-\u0662\u0660\u0662\u06660131t235959123-0123456789",
        "../b-20260131t235959123-0123456789",
        "b-20260131t235959123-0123456789/../..",
        "b" * 1_000_000,
    ],
)
def test_whatever_is_no_id_is_refused_in_a_short_message(text):
    with pytest.raises(FormatError) as caught:
        check_id(text, "bundle")
    assert len(caught.value.message) < 200
    assert "b-2026" in caught.value.hint


def test_a_time_is_written_in_utc_to_the_millisecond():
    assert utc_text(MOMENT) == "2026-01-31T23:59:59.123Z"


@pytest.mark.parametrize("text", ["2026-01-31T23:59:59Z", "2026-01-31T23:59:59.123456+00:00"])
def test_times_in_utc_are_taken(text):
    assert check_time(text) == text


@pytest.mark.parametrize(
    "text",
    ["", "today", "2026-01-31", "2026-01-31T23:59:59", "2026-01-31T23:59:59+01:00", "2026-02-30T00:00:00Z"],
)
def test_other_times_are_refused(text):
    with pytest.raises(FormatError, match="not a time in UTC"):
        check_time(text)


def test_nonces_are_long_and_differ():
    assert re.fullmatch("[0-9a-f]{32}", new_nonce())
    assert len({new_nonce() for _ in range(1000)}) == 1000
