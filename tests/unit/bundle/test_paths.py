import time

import pytest

from samestep.bundle.errors import FormatError
from samestep.bundle.paths import check_part_path, check_part_paths, part_key, part_path

BUNDLE = "b-20260201t000200000-00000000b2"


@pytest.mark.parametrize(
    "path",
    [
        "model.safetensors",
        "pytorch_model_fsdp_0/.metadata",
        "__0_0.distcp",
        "=odd",
        "a b/ü/日本語.json",
        "a/" * 500 + "b",
        "x" * 240,
        "model-00001-of-00002.safetensors",
    ],
)
def test_names_that_frameworks_use_are_allowed(path):
    assert check_part_path(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/etc/passwd",
        "a//b",
        "a/",
        ".",
        "..",
        "../x",
        "a/../../x",
        "a/./b",
        "a\\..\\b",
        "C:evil",
        "a\x00b",
        "a\nb",
        "a\x1b[2Jb",
        "a\x7f",
        "a\u202eb",
        "a\u200bb",
        "a\ufeff",
        "a\ud800",
        "e\u0301",
        " a",
        "a ",
        "a.",
        "a./b",
        "a\u00a0/b",
        "...",
        "x" * 241,
        "é" * 121,
        "a/" * 512 + "b",
    ],
    ids=lambda path: ascii(path)[:30],
)
def test_a_path_that_leads_out_or_is_ambiguous_is_refused(path):
    with pytest.raises(FormatError, match="the part path") as caught:
        check_part_path(path)
    assert caught.value.message.isascii()
    assert len(caught.value.message) < 450


@pytest.mark.parametrize(
    "paths",
    [
        ["a", "a"],
        ["Model.bin", "model.bin"],
        ["straße", "STRASSE"],
        ["\ufb01le", "file"],
        ["\u017f", "s"],
        ["É/x", "é/X"],
    ],
    ids=ascii,
)
def test_two_paths_that_some_file_system_takes_for_one_are_refused(paths):
    with pytest.raises(FormatError, match="would be one file"):
        check_part_paths(paths)


@pytest.mark.parametrize("paths", [["a", "a/b"], ["a/b/c", "x", "A/B"], ["a", "a!", "a-b", "a/b"]])
def test_a_file_that_is_also_a_folder_is_refused(paths):
    with pytest.raises(FormatError, match="is a file and the folder of"):
        check_part_paths(paths)


def test_files_of_one_folder_and_alike_names_stand_beside_each_other():
    check_part_paths(["a/b", "a/c", "ab", "a.b", "b/a"])


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("model.safetensors", f"bundles/{BUNDLE}/model.safetensors"),
        ("a/.metadata", f"bundles/{BUNDLE}/a/=.metadata"),
        (".holds/x", f"bundles/{BUNDLE}/=.holds/x"),
        ("=a/==b/c=", f"bundles/{BUNDLE}/==a/===b/c="),
    ],
)
def test_no_part_is_kept_under_a_name_of_the_stores_own(path, key):
    assert part_key(BUNDLE, path) == key
    assert part_path(BUNDLE, key) == path


@pytest.mark.parametrize(
    "key",
    [
        f"bundles/{BUNDLE}/.holds/pin.json",
        f"bundles/{BUNDLE}/.saving.json",
        f"bundles/{BUNDLE}/a/.unfinished-1",
        f"bundles/{BUNDLE}/",
        f"bundles/{BUNDLE}",
        "bundles/other/model.safetensors",
        "chain/0000000001.json",
    ],
)
def test_what_belongs_to_the_store_is_no_part(key):
    assert part_path(BUNDLE, key) is None


def test_twenty_thousand_deep_paths_are_checked_in_seconds():
    paths = [f"{number:05}/" + "d/" * 100 + "é" for number in range(20_000)]
    began = time.process_time()
    check_part_paths(paths)
    assert time.process_time() - began < 20


@pytest.mark.parametrize("path", ["..", "a/../b", "./a"])
def test_the_message_says_that_a_path_leads_elsewhere(path):
    with pytest.raises(FormatError, match=r"has a \. or \.\. in it"):
        check_part_path(path)
