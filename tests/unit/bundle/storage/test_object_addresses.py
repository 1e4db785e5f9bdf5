"""Addresses and settings of object stores, before any request is made."""

from __future__ import annotations

import sys

import pytest

from samestep.bundle.errors import StoreError
from samestep.bundle.storage.objects import Patience, open_object_store

obstore = pytest.importorskip("obstore", reason="the extra cloud is not installed")

GIB = 1 << 30


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT", "AZURE_STORAGE_ACCOUNT_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("s3://bucket/runs/one/", "s3://bucket/runs/one"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("memory:", "memory:"),
        ("memory:///", "memory:"),
    ],
)
def test_a_place_is_named_as_its_user_would(written, shown):
    assert open_object_store(written).url == shown


@pytest.mark.parametrize(
    "url",
    [
        "s3://",
        "s3://b",
        "s3:/bucket/x",
        "s3://bucket//x",
        "s3://bucket/a/../b",
        "s3://Bucket/x",
        "ftp://bucket",
    ],
)
def test_an_address_that_names_no_bucket_is_refused(url):
    with pytest.raises(StoreError, match="is not the address of an object store") as caught:
        open_object_store(url)
    assert "s3://BUCKET/PREFIX" in caught.value.hint


@pytest.mark.parametrize(
    "url", ["s3://key:SECRET@bucket/x", "az://container/x?sig=SECRET", "gs://bucket/x#SECRET"]
)
def test_credentials_in_an_address_are_refused_and_not_repeated(url):
    with pytest.raises(StoreError, match="a login, a query or a fragment") as caught:
        open_object_store(url)
    assert "SECRET" not in str(caught.value) + caught.value.hint


@pytest.mark.parametrize("endpoint", ["localhost:9000", "http://a b", "http://user:SECRET@host", "https://"])
def test_an_endpoint_that_is_no_server_is_named_and_not_repeated(endpoint, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(StoreError, match="AWS_ENDPOINT_URL is not the address of a server") as caught:
        open_object_store("s3://bucket/x")
    assert "SECRET" not in str(caught.value) + caught.value.hint


def test_a_setting_that_is_missing_is_named():
    with pytest.raises(StoreError, match=r"opening az://container/x failed: .*Account must be specified"):
        open_object_store("az://container/x")


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "obstore"]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "obstore", None)
    for name in ("object_storage", "object_errors"):
        monkeypatch.delitem(sys.modules, f"samestep.bundle.storage.{name}", raising=False)
        monkeypatch.delattr(f"samestep.bundle.storage.{name}", raising=False)
    with pytest.raises(StoreError, match="need the package obstore") as caught:
        open_object_store("s3://bucket/x")
    assert caught.value.hint == "pip install 'samestep[cloud]'"


def test_plain_http_is_allowed_only_where_the_user_named_such_an_endpoint(monkeypatch):
    patience = Patience(retries=0, connect_seconds=1, request_seconds=1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="error sending request"):
        open_object_store("s3://bucket/x", patience=patience).size("a")
    assert patience.client_options(plain_http=False)["allow_http"] is False


def test_retries_end_before_the_time_that_a_machine_about_to_go_has():
    patience = Patience()
    waits = [
        min(patience.first_wait_seconds * 2**n, patience.longest_wait_seconds)
        for n in range(patience.retries)
    ]
    assert sum(waits) < patience.give_up_seconds
    assert patience.give_up_seconds + patience.request_seconds <= 180


def test_pieces_grow_only_where_ten_thousand_would_not_do():
    from samestep.bundle.storage.object_storage import MOST_PIECES, PIECE_BYTES, piece_bytes

    assert piece_bytes(0) == piece_bytes(70 * GIB) == PIECE_BYTES
    for size in (79 * GIB, 400 * GIB, 5 << 40):
        piece = piece_bytes(size)
        assert size <= piece * MOST_PIECES < 2 * size + 2 * PIECE_BYTES * MOST_PIECES


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://h/b?sig=SECRET in 3 ms - 403", "GET http://h/b in 3 ms - 403"),
        ("GET http://me:SECRET@h/b failed", "GET http://h/b failed"),
        ("403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>SECRET", None),
        ("failed\n\nDebug source:\nGeneric { SECRET }", "failed"),
        ('400: {"error": "SECRET"}', "400"),
    ],
)
def test_the_clients_words_are_told_without_what_a_server_signed(text, shown):
    from samestep.bundle.storage.object_errors import reason

    told = reason(ValueError(text))
    assert told == (shown or "403 Forbidden (SignatureDoesNotMatch)")
