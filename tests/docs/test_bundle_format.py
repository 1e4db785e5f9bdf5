"""The page about the bundle format: its example is real, its commands give what it shows, no field is left out."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from samestep.bundle import canonical, holds, manifest, paths, records, store
from samestep.bundle.records import AttemptRecord, CommitRecord, decode_record, encode_record, record_key

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "bundle-format.md").read_text(encoding="utf-8")
RECORDS = re.findall(r"```json\n(.+?\n)```", PAGE)
COMMANDS = re.search(r"```console\n(.+?)```", PAGE, re.DOTALL)[1]
STRUCTS = {
    name: struct
    for module in (manifest, records)
    for name, struct in inspect.getmembers(module, inspect.isclass)
    if issubclass(struct, msgspec.Struct)
}
B3SUM = """#!{python}
import sys
from pathlib import Path

from blake3 import blake3

assert sys.argv[1] == "--no-names"
for name in sys.argv[2:] or ["/dev/stdin"]:
    print(blake3(Path(name).read_bytes()).hexdigest())
"""


@pytest.fixture
def example(tmp_path):
    """A folder with the two records of the example, and a b3sum where there is none."""
    (tmp_path / "chain").mkdir()
    for number, text in enumerate(RECORDS, start=1):
        (tmp_path / record_key(number)).write_text(text, encoding="utf-8")
    tool = tmp_path / "bin" / "b3sum"
    tool.parent.mkdir()
    if not shutil.which("b3sum"):
        tool.write_text(B3SUM.format(python=sys.executable), encoding="utf-8")
        tool.chmod(0o755)
    return tmp_path


def test_the_records_of_the_example_are_what_samestep_writes():
    first, second = (
        decode_record(text.encode(), number=number, what="it") for number, text in enumerate(RECORDS, start=1)
    )
    assert isinstance(first, AttemptRecord)
    assert isinstance(second, CommitRecord)
    assert [encode_record(record).decode() for record in (first, second)] == RECORDS
    assert second.bundle.data.position == (3, 1200)


@pytest.mark.skipif(not all(map(shutil.which, ("sha256sum", "jq", "xxd"))), reason="a tool is not installed")
def test_the_commands_of_the_example_print_what_the_page_shows(example):
    shown = re.findall(r"^\$ (.+)\n((?:[^$].*\n)*)", COMMANDS, re.MULTILINE)
    path = f"{example / 'bin'}:/usr/local/bin:/usr/bin:/bin"
    for command, expected in shown:
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=example,
            env={"PATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == expected, command


def test_the_digests_that_the_commands_print_stand_in_the_manifest():
    bundle = decode_record(RECORDS[1].encode(), number=2, what="it").bundle
    for part in bundle.parts:
        for digest in (part.digest, *part.chunks):
            assert f"\n{digest}\n" in COMMANDS


@pytest.mark.parametrize("name", STRUCTS)
def test_every_field_is_described(name):
    missing = [field for field in STRUCTS[name].__struct_fields__ if f"`{field}`" not in PAGE]
    assert not missing


def test_every_component_state_version_and_limit_stands_on_the_page():
    words = (*manifest.COMPONENTS, *manifest.STATES, *manifest.ORIGINS, *manifest.IN_MANIFEST)
    versions = (records.CHAIN_SCHEMA, manifest.MANIFEST_SCHEMA, store.RUN_SCHEMA, holds.HOLD_SCHEMA)
    assert not [word for word in (*words, *versions) if f"`{word}`" not in PAGE]
    assert f"{manifest.PARTS_LIMIT:,} parts" in PAGE
    assert f"{canonical.VALUES_LIMIT:,} of the characters" in PAGE
    assert f"{canonical.BYTES_LIMIT >> 20} MiB, " in PAGE
    assert f"nest at most {canonical.DEPTH_LIMIT} deep" in PAGE
    assert f"at most {canonical.DIGITS_LIMIT} digits" in PAGE
    assert f"at most {paths.PATH_BYTES} bytes, {paths.NAME_BYTES} a name" in PAGE
    assert f"at most {records.NUMBER_LIMIT:,} records" in PAGE
