"""What names say."""

import pytest

from samestep.checkpoints import is_leftover, is_log
from samestep.checkpoints.naming import is_step_folder, number_in, stem_of, step_in


@pytest.mark.parametrize(
    "path",
    [
        "runs/Nov01/events.out.tfevents.1.host.1.0", "train.log", "log.txt", "metrics.csv", "wandb/run-1/config.yaml",
        "history.json", "losses.jsonl", "lightning_logs/version_0/hparams.yaml", "all_results.json", "README.md",
        "checkpoint-6/README.md", "curve.png", "logs/anything.json", "train_metrics.json",
    ],
)  # fmt: skip
def test_logs_and_pictures_are_neither_checkpoint_nor_unit(path):
    assert is_log(path)


@pytest.mark.parametrize(
    "path",
    [
        "runs/detect/train/weights/last.pt", "lightning_logs/version_0/checkpoints/epoch=0-step=6.ckpt",
        "checkpoint-6/trainer_state.json", "state.json", "latest", "config.json", "model.safetensors", "logits.npy",
        "catalog.json", "checkpoint-6/optimizer.pt", "training_args.bin",
    ],
)  # fmt: skip
def test_state_is_not_a_log_even_in_a_folder_of_logs(path):
    assert not is_log(path)


@pytest.mark.parametrize(
    "name", ["a.pt.tmp", "tmpab12cd34", ".tmp-ckpt.pt", "x.pt.part", "m.pt.lock", ".metadata.tmp", "c.pt~"]
)
def test_leftovers_of_unfinished_writes_are_told_apart(name):
    assert is_leftover(name)


@pytest.mark.parametrize("name", ["last.pt", "template.pt", "checkpoint-6", "part_1.pt", "temperature.pt"])
def test_ordinary_names_are_not_leftovers(name):
    assert not is_leftover(name)


@pytest.mark.parametrize(
    ("name", "number", "step"),
    [
        ("ckpt_12.pt", 12, 12), ("checkpoint-6", 6, 6), ("epoch=0-step=6.ckpt", 6, 6), ("epoch_3.pt", 3, None),
        ("model-00001-of-00002.safetensors", None, None), ("resnet50.pt", None, None), ("model.pt", None, None),
        ("checkpoint-3.pth.tar", 3, 3), ("ckpt_12_rank1.pt", 12, 12), ("global_step40", 40, 40),
        ("iter_0000012", 12, 12), ("step12.pt", 12, 12), ("000100", 100, 100),
    ],
)  # fmt: skip
def test_the_last_separate_number_counts_unless_it_numbers_epochs_shards_or_ranks(name, number, step):
    assert number_in(name) == number
    assert step_in(name) == step


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("step_6", True),
        ("checkpoint-6", True),
        ("epoch_1", True),
        ("12", True),
        ("version_0", False),
        ("run_3", False),
    ],
)
def test_folders_named_after_steps_are_told_from_folders_named_after_runs(name, expected):
    assert is_step_folder(name) is expected


def test_a_stem_has_no_endings_left():
    assert stem_of("model_best.pth.tar") == "model_best"
