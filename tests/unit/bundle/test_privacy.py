import pytest

from record_samples import manifest
from samestep.bundle.errors import FormatError
from samestep.bundle.privacy import check_privacy, private_removed, without_private


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("HF_TOKEN", "anything at all", "***"),
        ("wandb_api_key", "0123abcd", "***"),
        ("command", "train.py --hub-token abc123 --lr 1", "train.py --hub-token *** --lr 1"),
        ("store", "https://user:pass@host/x", "https://***@host/x"),
        ("note", "hf_abcdefghijklmnopqrstuv", "***"),
        ("script", "/home/ada/train.py", "<path>"),
        ("PATH", "/usr/bin:/opt/x y", "<path>:<path> y"),
        ("args", "--out=/mnt/data/run --in ~/in", "--out=<path> --in <path>"),
        ("root", "~", "~"),
        ("home", "~ada/x", "<path>"),
        ("where", "file:///etc/passwd", "<path>"),
        ("drive", "C:\\Users\\ada", "<path>"),
        ("share", "\\\\host\\share", "<path>"),
        ("quoted", "open('/etc/x')", "open('<path>')"),
    ],
)
def test_secrets_and_absolute_paths_are_hidden(name, value, shown):
    assert without_private({name: value}) == {name: shown}


@pytest.mark.parametrize(
    "value",
    [
        "2.9.0+cu128",
        "https://host/path/x",
        "s3://bucket/prefix",
        "src/train.py",
        "n/a",
        "and / or",
        "/",
        "3/4",
        "NVIDIA H200 (driver: 570.1)",
        "Linux-6.8.0-x86_64-with-glibc2.39",
        "0123456789abcdef0123456789abcdef01234567",
        "",
    ],
)
def test_other_values_stay_as_they_are(value):
    assert without_private({"value": value}) == {"value": value}


def test_a_manifest_with_something_private_is_refused_and_the_message_does_not_show_it():
    for field in ("code", "environment"):
        private = manifest(**{field: {"ok": "1", "password": "hunter2"}})
        with pytest.raises(FormatError, match=f"{field}.password of b-") as caught:
            check_privacy(private)
        assert "hunter2" not in caught.value.message + caught.value.hint


def test_a_manifest_with_everything_private_removed_passes():
    private = manifest(code={"script": "/a/b.py"}, environment={"API_KEY": "x1y2", "torch": "2.9"})
    cleaned = private_removed(private)
    check_privacy(cleaned)
    assert cleaned.code == {"script": "<path>"}
    assert cleaned.environment == {"API_KEY": "***", "torch": "2.9"}
    assert cleaned.parts == private.parts
