"""Which interruptions a file system has to be judged by."""

from pathlib import Path

import pytest

from samestep.process.storage import allowed_models, storage_type


def test_a_kernel_file_system_is_known_by_its_mount():
    assert storage_type(Path("/proc")) == "proc"


def test_in_memory_only_the_process_can_be_lost():
    assert not {model for model in allowed_models("tmpfs") if model.startswith("power-")}


@pytest.mark.parametrize(("storage", "allowed"), [("ext4", False), ("xfs", True), ("unheard-of", True)])
def test_what_ext4_rules_out_counts_elsewhere(storage, allowed):
    assert ("power-xfs" in allowed_models(storage)) is allowed


def test_only_a_storage_without_promises_is_judged_by_the_worst():
    assert "posix-worst" in allowed_models("posix")
    assert not any(
        "posix-worst" in allowed_models(storage) for storage in ("ext4", "xfs", "nfs", "unheard-of")
    )
