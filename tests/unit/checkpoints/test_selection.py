"""Which checkpoint a restart would take."""

import os

from samestep.checkpoints import find_units, select, would_pick


def age(path, seconds):
    for inner in (path, *path.rglob("*")):
        os.utime(inner, (1_700_000_000 + seconds, 1_700_000_000 + seconds))


def lightning(forge, path, step):
    value = {
        "pytorch-lightning_version": "2.6",
        "state_dict": forge.weights(),
        "global_step": step,
        "epoch": 0,
    }
    return forge.torch_file(path, value | {"optimizer_states": [forge.optimizer()]})


def test_the_trainer_takes_the_highest_number_even_when_it_is_empty(forge, tmp_path):
    forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6)
    (tmp_path / "checkpoint-999").mkdir()
    forge.trainer_checkpoint(tmp_path / "checkpoint-1200-backup", 1200)
    assert would_pick(tmp_path).path == "checkpoint-999"


def test_lightning_takes_the_newest_last_file_and_nothing_else(forge, tmp_path):
    lightning(forge, tmp_path / "epoch=0-step=12.ckpt", 12)
    assert would_pick(tmp_path) is None
    age(lightning(forge, tmp_path / "last.ckpt", 6), 20)
    age(lightning(forge, tmp_path / "last-v1.ckpt", 9), 10)
    assert would_pick(tmp_path).path == "last.ckpt"


def test_deepspeed_takes_what_the_latest_file_names(forge, tmp_path):
    for step in (4, 8):
        folder = tmp_path / f"global_step{step}"
        forge.torch_file(
            folder / "mp_rank_00_model_states.pt", {"module": forge.weights(), "global_steps": step}
        )
    assert would_pick(tmp_path) is None
    (tmp_path / "latest").write_text("global_step4")
    assert would_pick(tmp_path).path == "global_step4"


def test_ultralytics_takes_the_last_file_that_was_changed_last(forge, tmp_path):
    value = {
        "epoch": 3,
        "model": None,
        "ema": forge.weights(),
        "optimizer": forge.optimizer(),
        "train_args": {"lr0": 1},
    }
    for run in ("train", "train2"):
        forge.torch_file(tmp_path / run / "weights" / "best.pt", value)
        forge.torch_file(tmp_path / run / "weights" / "last.pt", value)
    assert would_pick(tmp_path).path == "train2/weights/last.pt"


def test_a_scripts_pointer_beats_names_and_numbers(forge, tmp_path):
    for step in (6, 12):
        forge.torch_file(tmp_path / f"ckpt_{step}.pt", forge.checkpoint(step))
    chosen = select(tmp_path, find_units(tmp_path))
    assert (chosen.unit.path, chosen.certain) == ("ckpt_12.pt", False)
    (tmp_path / "latest").write_text("ckpt_6.pt")
    chosen = select(tmp_path, find_units(tmp_path))
    assert (chosen.unit.path, chosen.rule) == ("ckpt_6.pt", "latest names it")


def test_a_file_called_last_is_what_a_script_would_take(forge, tmp_path):
    for name in ("best.pt", "last.pt", "zz.pt"):
        forge.torch_file(tmp_path / name, forge.checkpoint(6))
    assert would_pick(tmp_path).path == "last.pt"


def test_without_names_or_numbers_the_newest_is_what_a_script_would_take(forge, tmp_path):
    age(forge.torch_file(tmp_path / "a.pt", forge.checkpoint(6)), 10)
    age(forge.torch_file(tmp_path / "b.pt", forge.checkpoint(6)), 0)
    assert would_pick(tmp_path).path == "a.pt"


def test_nothing_is_taken_from_an_empty_folder(tmp_path):
    assert would_pick(tmp_path) is None
