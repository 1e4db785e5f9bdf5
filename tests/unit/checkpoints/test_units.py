"""Which files below a folder form one checkpoint."""

import json
import os
import shutil

import pytest

from samestep.checkpoints import Unit, find_units, framework_hint, inspect_unit


def paths(root, **options):
    return [unit.path for unit in find_units(root, **options)]


def test_trainer_checkpoints_are_units_with_the_step_they_state(forge, tmp_path):
    for step in (6, 18, 12):
        forge.trainer_checkpoint(tmp_path / f"checkpoint-{step}", step)
    units = find_units(tmp_path)
    assert [(unit.path, unit.framework, unit.step) for unit in units] == [
        ("checkpoint-6", "transformers", 6),
        ("checkpoint-12", "transformers", 12),
        ("checkpoint-18", "transformers", 18),
    ]
    assert units[2].files[1] == "checkpoint-18/optimizer.pt"
    assert framework_hint(tmp_path) == "transformers"


def test_a_torn_or_empty_trainer_folder_is_still_a_unit(forge, tmp_path):
    whole = forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6)
    shutil.copytree(whole, tmp_path / "checkpoint-12")
    for name in ("trainer_state.json", "rng_state.pth", "training_args.bin"):
        (tmp_path / "checkpoint-12" / name).unlink()
    (tmp_path / "checkpoint-999").mkdir()
    found = {unit.path: (unit.framework, unit.step, len(unit.files)) for unit in find_units(tmp_path)}
    assert found["checkpoint-12"] == ("transformers", 12, 3)
    assert found["checkpoint-999"] == ("transformers", 999, 0)


def test_a_checkpoint_folder_itself_is_one_unit(forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6)
    assert paths(folder) == ["."]
    assert paths(folder / "optimizer.pt") == ["optimizer.pt"]


def test_the_final_model_beside_checkpoints_is_an_export_and_no_unit(forge, tmp_path):
    forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6)
    forge.safetensors(tmp_path / "model.safetensors", "layer.weight")
    assert paths(tmp_path) == ["checkpoint-6"]
    assert paths(tmp_path, exports=True) == ["model.safetensors", "checkpoint-6"]


def test_weights_alone_are_a_unit_when_there_is_nothing_else(forge, tmp_path):
    forge.torch_file(tmp_path / "model.pt", forge.weights())
    assert paths(tmp_path) == ["model.pt"]


def test_a_script_that_only_ever_saves_weights_has_units(forge, tmp_path):
    for step in (6, 12):
        forge.torch_file(tmp_path / f"model_{step}.pt", forge.weights())
    assert paths(tmp_path) == ["model_6.pt", "model_12.pt"]


def test_single_files_are_units_of_their_own(forge, tmp_path):
    for step in (6, 12):
        forge.torch_file(tmp_path / f"ckpt_{step}.pt", forge.checkpoint(step))
    forge.torch_file(tmp_path / "last.pt", forge.checkpoint(12))
    forge.torch_file(tmp_path / "best.pt", forge.checkpoint(6))
    assert sorted(paths(tmp_path)) == ["best.pt", "ckpt_12.pt", "ckpt_6.pt", "last.pt"]


def test_files_written_in_one_burst_form_one_checkpoint(forge, tmp_path):
    forge.torch_file(tmp_path / "model.pt", forge.weights())
    forge.torch_file(tmp_path / "optimizer.pt", forge.optimizer())
    (tmp_path / "meta.json").write_text('{"step": 6}')
    (tmp_path / "train.log").write_text("step 6")
    assert find_units(tmp_path) == [Unit(".", "unknown", 6, ("meta.json", "model.pt", "optimizer.pt"))]


def test_files_with_the_same_number_form_one_checkpoint(forge, tmp_path):
    for step in (6, 12):
        forge.torch_file(tmp_path / f"model_{step}.pt", forge.weights())
        forge.torch_file(tmp_path / f"optim_{step}.pt", forge.optimizer())
        (tmp_path / f"state_{step}.json").write_text(json.dumps({"global_step": step}))
    first, second = find_units(tmp_path)
    assert (first.path, first.step, first.files) == (
        "model_6.pt",
        6,
        ("model_6.pt", "optim_6.pt", "state_6.json"),
    )
    assert (second.path, second.step) == ("model_12.pt", 12)


def test_loose_random_states_belong_to_the_checkpoint_beside_them(forge, tmp_path):
    forge.torch_file(tmp_path / "ckpt.pt", forge.checkpoint(6))
    forge.torch_file(tmp_path / "rng.pkl", {"python": (3, (1, 2), None)})
    (tmp_path / "state.json").write_text('{"epoch": 1}')
    assert find_units(tmp_path) == [Unit("ckpt.pt", "unknown", 6, ("ckpt.pt", "rng.pkl", "state.json"))]


def test_a_static_configuration_is_not_part_of_a_later_checkpoint(forge, tmp_path):
    forge.torch_file(tmp_path / "ckpt_6.pt", forge.checkpoint(6))
    (tmp_path / "config.json").write_text("{}")
    os.utime(tmp_path / "config.json", (1000, 1000))
    assert find_units(tmp_path)[0].files == ("ckpt_6.pt",)


def test_files_of_all_ranks_form_one_checkpoint(forge, tmp_path):
    for rank in (0, 1):
        forge.torch_file(tmp_path / f"ckpt_rank{rank}.pt", forge.checkpoint(6))
    assert [unit.files for unit in find_units(tmp_path)] == [("ckpt_rank0.pt", "ckpt_rank1.pt")]


def test_a_folder_named_after_a_step_is_one_unit_whatever_is_in_it(forge, tmp_path):
    for step in (6, 12):
        forge.torch_file(tmp_path / f"step_{step}" / "model.pt", forge.weights())
        forge.torch_file(tmp_path / f"step_{step}" / "optim" / "optimizer.pt", forge.optimizer())
    (tmp_path / "step_18").mkdir()
    found = [(unit.path, unit.step, len(unit.files)) for unit in find_units(tmp_path)]
    assert found == [("step_6", 6, 2), ("step_12", 12, 2), ("step_18", 18, 0)]


def test_an_epoch_in_a_name_is_not_taken_for_a_step(forge, tmp_path):
    value = forge.checkpoint(6)
    del value["step"]
    forge.torch_file(tmp_path / "epoch_3.pt", value)
    assert find_units(tmp_path)[0].step is None


def test_a_pointer_belongs_to_the_unit_that_it_names(forge, tmp_path):
    for step in (6, 12):
        forge.torch_file(tmp_path / f"ckpt_{step}.pt", forge.checkpoint(step))
    (tmp_path / "latest").write_text("ckpt_6.pt\n")
    assert {unit.path: unit.pointers for unit in find_units(tmp_path)} == {
        "ckpt_6.pt": ("latest",),
        "ckpt_12.pt": (),
    }


def test_a_link_to_a_folder_is_a_pointer_and_not_a_second_unit(forge, tmp_path):
    forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6)
    (tmp_path / "latest").symlink_to("checkpoint-6", target_is_directory=True)
    assert [(unit.path, unit.pointers) for unit in find_units(tmp_path)] == [("checkpoint-6", ("latest",))]


def test_leftovers_logs_and_other_files_are_no_units(forge, tmp_path):
    forge.torch_file(tmp_path / "ckpt.pt.tmp", forge.checkpoint(6))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "events.out.tfevents.1").write_bytes(b"\0" * 50)
    (tmp_path / "notes.txt").write_text("hello")
    assert find_units(tmp_path) == []
    assert framework_hint(tmp_path) is None


def test_checkpoints_without_an_ending_are_found_by_how_they_begin(forge, tmp_path):
    forge.torch_file(tmp_path / "checkpoint", forge.checkpoint(6))
    assert [(unit.path, unit.step) for unit in find_units(tmp_path)] == [("checkpoint", 6)]


def test_a_torn_lightning_file_is_known_by_its_neighbours(forge, tmp_path):
    value = {"pytorch-lightning_version": "2.6", "state_dict": forge.weights(), "global_step": 6, "epoch": 0}
    forge.torch_file(tmp_path / "epoch=0-step=6.ckpt", value | {"optimizer_states": [forge.optimizer()]})
    (tmp_path / "epoch=0-step=12.ckpt").write_bytes(b"PK\3\4")
    assert [(unit.framework, unit.step) for unit in find_units(tmp_path)] == [
        ("lightning", 6),
        ("lightning", 12),
    ]


def test_accelerate_folders_are_told_from_trainer_folders_of_the_same_name(forge, tmp_path):
    folder = tmp_path / "checkpoint-500"
    forge.safetensors(folder / "model.safetensors", "layer.weight")
    forge.torch_file(folder / "optimizer.bin", forge.optimizer())
    (tmp_path / "checkpoint-999").mkdir()
    assert {unit.framework for unit in find_units(tmp_path)} == {"accelerate"}


def test_a_number_given_by_accelerate_is_not_taken_for_a_step(forge, tmp_path):
    forge.torch_file(tmp_path / "checkpoints" / "checkpoint_3" / "random_states_0.pkl", {"step": 0})
    assert [(unit.path, unit.step) for unit in find_units(tmp_path)] == [("checkpoints/checkpoint_3", None)]


@pytest.mark.parametrize("folder", ["checkpoint-6", "step_6"])
def test_a_scripts_own_folder_is_not_taken_for_a_trainers(forge, tmp_path, folder):
    forge.torch_file(tmp_path / folder / "model.pt", forge.weights())
    forge.torch_file(tmp_path / folder / "optimizer.pt", forge.optimizer())
    assert [(unit.framework, unit.path) for unit in find_units(tmp_path)] == [("unknown", folder)]


def test_an_empty_or_missing_folder_has_no_units(tmp_path):
    assert find_units(tmp_path) == find_units(tmp_path / "missing") == []


@pytest.mark.parametrize(
    "name",
    ["config.json", "train_args.yaml", "hparams.json", "tokenizer.json", "eval_results.json", "notes.txt"],
)
def test_a_configuration_or_a_log_written_with_a_checkpoint_is_no_part_of_it(forge, tmp_path, name):
    forge.torch_file(tmp_path / "last.pt", forge.checkpoint(6))
    (tmp_path / name).write_text("{}")
    assert find_units(tmp_path) == [Unit("last.pt", "unknown", 6, ("last.pt",))]


def test_a_configuration_inside_a_folder_of_its_step_stays_part_of_it(forge, tmp_path):
    forge.torch_file(tmp_path / "step_6" / "model.pt", forge.checkpoint(6))
    (tmp_path / "step_6" / "config.json").write_text("{}")
    assert find_units(tmp_path)[0].files == ("step_6/config.json", "step_6/model.pt")


def test_a_file_called_best_holds_what_is_in_it(tmp_path):
    import torch

    model = torch.nn.Linear(2, 2)
    torch.save({"step": 2, "model": model.state_dict()}, tmp_path / "best.pt")
    (unit,) = find_units(tmp_path)
    present = {
        str(item.component) for item in inspect_unit(tmp_path, unit).components if item.presence == "present"
    }
    assert present == {"weights", "progress"}
