"""Records of a chain, never stored anywhere: one of every kind, whole and plausible."""

from __future__ import annotations

import math

import msgspec
from blake3 import blake3

from samestep.bundle.digests import CHUNK_BYTES, combine
from samestep.bundle.manifest import Data, Manifest, Parent, Part, Row, Timings, World
from samestep.bundle.records import (
    AttemptRecord,
    BundleRef,
    CommitRecord,
    ReinstateRecord,
    RemoveRecord,
    RetireRecord,
)

RUN = "r-20260131t235959123-0123456789"
ATTEMPT = "a-20260201t000000000-00000000aa"
OLDER = "b-20260201t000100000-00000000b1"
NEWER = "b-20260201t000200000-00000000b2"
COMMON = {"run": RUN, "nonce": "5eed" * 8, "written": "2026-02-01T00:02:00.500Z", "attempt_ordinal": 1}


def part(path, content=b"bytes", **fields):
    """Return a part of at most one chunk that holds ``content``."""
    digest = blake3(content).hexdigest()
    return Part(path=path, size=len(content), algorithm="blake3", digest=digest, **fields)


def large_part(path, size, **fields):
    """Return a part of several chunks, as a manifest shows it; nobody looks at its bytes."""
    chunks = tuple(blake3(number.to_bytes(8)).hexdigest() for number in range(-(-size // CHUNK_BYTES)))
    algorithm, digest = combine(chunks)
    return Part(path=path, size=size, algorithm=algorithm, digest=digest, chunks=chunks, **fields)


def manifest(**changes):
    """Return a manifest that uses every field, changed as told."""
    whole = Manifest(
        id=NEWER,
        attempt=ATTEMPT,
        step=300,
        parts=(
            part("model.safetensors", b"weights", components=("weights",)),
            large_part("optimizer/rank-0.safetensors", 40_000_000, components=("optimizer",), rank=0),
            part("frozen/.metadata", b"old", stored_in=OLDER, share_depth=2),
        ),
        contract={
            "weights": Row(state="saved", parts=("model.safetensors", "frozen/.metadata")),
            "optimizer": Row(state="saved", parts=("optimizer/rank-0.safetensors",)),
            "progress": Row(state="saved"),
            "schedule": Row(state="rebuilt", how="from the step", test="tests/test_schedule.py"),
            "scaler": Row(state="irrelevant", because="bfloat16 needs none"),
            "ema": Row(state="open", because="nobody looked"),
        },
        parent=Parent(id=OLDER, number=2),
        created="2026-02-01T00:01:59.000Z",
        origin="sealed",
        framework="transformers",
        name="checkpoint-300",
        progress={"epoch": 1.5, "best": math.inf, "samples": 2**80, ("a", 1): b"\x00\xff"},
        data=Data(version="sha256:00", position={"shard": 3, "offset": (1, 2)}, rule="append-only"),
        code={"commit": "0123abcd"},
        config_digest="sha256:0123456789abcdef",
        environment={"torch": "2.9.0", "cuda": "none"},
        world=World(size=2, layout={"mesh": [2], "names": ["data"]}),
        timings=Timings(started=1.0, state_ready=2.5, parts_durable=3.0, committing=3.5),
        journal=(f"journal/{ATTEMPT}/0000000001.jsonl",),
    )
    return msgspec.structs.replace(whole, **changes)


def commit(number=5, **changes):
    """Return a commit of ``manifest(**changes)``."""
    return CommitRecord(number=number, bundle=manifest(**changes), **COMMON)


def plain_commit():
    """Return a commit that leaves out whatever may be left out."""
    bundle = Manifest(
        id=OLDER, attempt=ATTEMPT, step=0, parts=(), contract={}, created="2026-02-01T00:00:01Z"
    )
    return CommitRecord(number=2, bundle=bundle, **COMMON)


def references():
    """Return the references to an older and a newer bundle."""
    return BundleRef(id=OLDER, number=2, step=0), BundleRef(id=NEWER, number=5, step=300)


def all_records():
    """Return a record of every kind, by name."""
    older, newer = references()
    retire = RetireRecord(
        number=6, bundles=(older,), survivors=(newer,), policy="keep-last 1", verified=NEWER, **COMMON
    )
    return {
        "first attempt": AttemptRecord(number=1, attempt=ATTEMPT, saw=0, **COMMON),
        "attempt": AttemptRecord(
            number=8, attempt=ATTEMPT, saw=7, resumed=newer, reason="newest whole", host="sha256:00", **COMMON
        ),
        "plain commit": plain_commit(),
        "commit": commit(),
        "retire": retire,
        "remove": RemoveRecord(number=7, bundles=(OLDER,), **COMMON),
        "reinstate": ReinstateRecord(number=7, bundles=(older,), because="held by a restore", **COMMON),
    }
