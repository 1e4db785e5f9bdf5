"""What a checkpoint can be used for, and why not."""

import json
import os
import pickle

import pytest

from samestep.checkpoints import Presence, Verdict, inspect_path
from samestep.contract import Component, Intent
from samestep.errors import CheckpointError


def only(path):
    found = inspect_path(path)
    assert len(found.inspections) == 1
    return found.inspections[0]


def presence(item, component):
    return next((report.presence for report in item.components if report.component is component), None)


def resume(item):
    answer = item.answer(Intent.RESUME)
    return answer.verdict, "\n".join(answer.reasons)


@pytest.fixture
def trainer(forge, tmp_path):
    return forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6)


def test_a_whole_trainer_checkpoint_serves_every_intent(trainer):
    item = only(trainer)
    assert item.whole
    assert [answer.verdict for answer in item.answers] == [Verdict.YES] * 3
    assert presence(item, Component.DATA_POSITION) is Presence.REBUILT


@pytest.mark.parametrize(
    ("removed", "reason"),
    [
        ("optimizer.pt", "schedule present, but will be skipped silently (the Trainer loads it only together with"),
        ("scheduler.pt", "optimizer present, but will be skipped silently (the Trainer loads it only together with"),
        ("rng_state.pth", "rng_state.pth is missing"),
        ("trainer_state.json", "trainer_state.json is missing: the last file a save writes"),
        ("model.safetensors", "model.safetensors is missing"),
    ],
)  # fmt: skip
def test_each_missing_file_of_a_trainer_checkpoint_prevents_a_resume(trainer, removed, reason):
    (trainer / removed).unlink()
    item = only(trainer)
    verdict, reasons = resume(item)
    assert not item.whole
    assert verdict is Verdict.NO
    assert reason in reasons


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "model.safetensors"]
)
def test_each_truncated_file_of_a_trainer_checkpoint_prevents_a_resume(trainer, name):
    path = trainer / name
    os.truncate(path, path.stat().st_size // 2)
    item = only(trainer)
    assert [problem.file for problem in item.problems] == [name]
    assert resume(item)[0] is Verdict.NO
    weights = Verdict.NO if name == "model.safetensors" else Verdict.YES
    assert item.answer(Intent.WEIGHTS).verdict is weights


def test_a_model_only_trainer_checkpoint_is_whole_but_does_not_resume(trainer):
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (trainer / name).unlink()
    item = only(trainer)
    assert item.whole
    verdict, reasons = resume(item)
    assert verdict is Verdict.NO
    assert "save_only_model" in reasons
    assert item.answer(Intent.NEW_RUN).verdict is Verdict.YES


def test_early_stopping_is_stored_by_the_trainer_but_not_loaded(forge, tmp_path):
    item = only(forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6, callbacks=["EarlyStoppingCallback"]))
    assert presence(item, Component.CALLBACKS) is Presence.NOT_LOADED
    assert resume(item)[0] is Verdict.YES_BUT
    arguments = {"restore_callback_states_from_checkpoint": True}
    folder = forge.trainer_checkpoint(
        tmp_path / "checkpoint-12", 12, callbacks=["EarlyStoppingCallback"], arguments=arguments
    )
    assert resume(only(folder))[0] is Verdict.YES


@pytest.mark.parametrize(
    ("arguments", "component"),
    [
        ({"ignore_data_skip": True}, Component.DATA_POSITION),
        ({"train_sampling_strategy": "group_by_length"}, Component.DATA_ORDER),
        ({"fp16": True}, Component.SCALER),
    ],
)
def test_arguments_of_the_run_tell_what_will_not_come_back(forge, tmp_path, arguments, component):
    item = only(forge.trainer_checkpoint(tmp_path / "checkpoint-6", 6, arguments=arguments))
    assert presence(item, component) is Presence.ABSENT
    assert resume(item)[0] is not Verdict.YES


def test_a_missing_rank_and_a_missing_shard_are_named(forge, trainer):
    (trainer / "rng_state.pth").rename(trainer / "rng_state_0.pth")
    forge.torch_file(trainer / "rng_state_2.pth", {"cpu": forge.Tensor(16)})
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (trainer / "model.safetensors").rename(trainer / "model-00001-of-00002.safetensors")
    (trainer / "model.safetensors.index.json").write_text(json.dumps(index))
    named = {problem.file for problem in only(trainer).problems}
    assert named == {"rng_state_1.pth", "model-00002-of-00002.safetensors"}
    assert only(trainer).answer(Intent.WEIGHTS).verdict is Verdict.NO


def test_the_mark_of_an_unfinished_signal_save_is_a_problem(trainer):
    (trainer / "checkpoint-is-incomplete.txt").touch()
    assert any(problem.file == "checkpoint-is-incomplete.txt" for problem in only(trainer).problems)


def test_an_adapter_needs_its_base_model(trainer):
    (trainer / "model.safetensors").rename(trainer / "adapter_model.safetensors")
    (trainer / "adapter_config.json").write_text('{"base_model_name_or_path": "tiny/base"}')
    answer = only(trainer).answer(Intent.WEIGHTS)
    assert answer.verdict is Verdict.YES_BUT
    assert 'needs the base model "tiny/base"' in answer.reasons[0]


def lightning(forge, path, **more):
    value = {
        "pytorch-lightning_version": "2.6", "epoch": 0, "global_step": 6, "state_dict": forge.weights(),
        "loops": {"fit_loop": {"state_dict": {}, "epoch_loop.batch_progress": {"is_last_batch": False}}},
        "optimizer_states": [forge.optimizer()], "lr_schedulers": [forge.schedule(6)], "callbacks": {},
    }  # fmt: skip
    return forge.torch_file(path, value | more)


def test_lightning_cannot_store_generators_and_a_plain_loader_starts_over(forge, tmp_path):
    item = only(lightning(forge, tmp_path / "last.ckpt"))
    assert presence(item, Component.RNG) is Presence.NOT_STORABLE
    assert presence(item, Component.DATA_POSITION) is Presence.ABSENT
    assert resume(item)[0] is Verdict.YES_BUT


def test_lightning_keeps_the_position_of_a_loader_that_has_a_state(forge, tmp_path):
    loops = {"fit_loop": {"state_dict": {"combined_loader": [{"position": 24}]}}}
    item = only(lightning(forge, tmp_path / "last.ckpt", loops=loops))
    assert presence(item, Component.DATA_POSITION) is Presence.PRESENT


def test_averaged_weights_of_lightning_are_told_from_the_raw_ones(forge, tmp_path):
    item = only(lightning(forge, tmp_path / "last.ckpt", current_model_state=forge.weights()))
    assert presence(item, Component.EMA) is Presence.PRESENT
    assert item.answer(Intent.WEIGHTS).verdict is Verdict.YES_BUT


def test_a_lightning_file_with_weights_only_does_not_resume(forge, tmp_path):
    value = {
        "pytorch-lightning_version": "2.6",
        "epoch": 0,
        "global_step": 6,
        "state_dict": forge.weights(),
        "loops": {},
    }
    item = only(forge.torch_file(tmp_path / "w.ckpt", value))
    assert resume(item)[0] is Verdict.NO
    assert item.answer(Intent.WEIGHTS).verdict is Verdict.YES


def test_accelerate_keeps_neither_step_nor_data_position(forge, tmp_path):
    folder = tmp_path / "checkpoint_0"
    forge.safetensors(folder / "model.safetensors", "layer.weight")
    forge.torch_file(folder / "optimizer.bin", forge.optimizer())
    forge.torch_file(folder / "random_states_0.pkl", {"step": 0, "random_state": (3, (1,), None)})
    item = only(folder)
    assert (
        presence(item, Component.PROGRESS) is presence(item, Component.DATA_POSITION) is Presence.NOT_STORABLE
    )
    assert resume(item)[0] is Verdict.YES_BUT
    (folder / "random_states_0.pkl").unlink()
    assert resume(only(folder))[0] is Verdict.NO


def deepspeed(forge, folder, ranks):
    value = {
        "module": forge.weights(),
        "global_steps": 4,
        "lr_scheduler": forge.schedule(4),
        "dp_world_size": ranks,
    }
    forge.torch_file(folder / "mp_rank_00_model_states.pt", value)
    for rank in range(ranks):
        name = f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
        forge.torch_file(folder / name, {"optimizer_state_dict": forge.optimizer()})


def test_deepspeed_needs_the_shards_of_all_ranks_and_its_pointer(forge, tmp_path):
    deepspeed(forge, tmp_path / "global_step4", 2)
    (tmp_path / "latest").write_text("global_step4")
    item = only(tmp_path)
    assert item.whole
    assert item.unit.step == 4
    assert "latest" not in resume(item)[1]
    (tmp_path / "latest").unlink()
    assert 'no file "latest" names this folder' in resume(only(tmp_path / "global_step4"))[1]
    (tmp_path / "global_step4" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert not only(tmp_path / "global_step4").whole


def test_a_stripped_ultralytics_file_is_good_for_weights_only(forge, tmp_path):
    running = {
        "epoch": 3,
        "model": None,
        "ema": forge.weights(),
        "optimizer": forge.optimizer(),
        "train_args": {"lr0": 1},
    }
    item = only(forge.torch_file(tmp_path / "last.pt", running))
    assert item.unit.framework == "ultralytics"
    assert resume(item)[0] is Verdict.YES_BUT
    stripped = running | {"epoch": -1, "model": forge.weights(), "ema": None, "optimizer": None}
    item = only(forge.torch_file(tmp_path / "last.pt", stripped))
    assert resume(item)[0] is Verdict.NO
    assert item.answer(Intent.WEIGHTS).verdict is Verdict.YES


def test_a_timm_file_rebuilds_its_schedule_and_repeats_the_epoch(forge, tmp_path):
    value = {
        "epoch": 3,
        "arch": "vit",
        "state_dict": forge.weights(),
        "optimizer": forge.optimizer(),
        "version": 2,
    }
    item = only(forge.torch_file(tmp_path / "last.pth.tar", value))
    assert item.unit.framework == "timm"
    assert presence(item, Component.SCHEDULE) is Presence.REBUILT
    assert resume(item)[0] is Verdict.YES_BUT


def test_a_careful_scripts_file_resumes(forge, tmp_path):
    assert resume(only(forge.torch_file(tmp_path / "c.pt", forge.checkpoint(6)))) == (Verdict.YES, "")


@pytest.mark.parametrize(
    ("key", "component", "expected"),
    [
        ("optimizer", Component.OPTIMIZER, Verdict.NO),
        ("model", Component.WEIGHTS, Verdict.NO),
        ("scheduler", Component.SCHEDULE, Verdict.YES_BUT),
        ("rng_state", Component.RNG, Verdict.YES_BUT),
        ("sampler", Component.DATA_POSITION, Verdict.YES_BUT),
        ("step", Component.PROGRESS, Verdict.YES_BUT),
    ],
)
def test_each_component_that_a_script_leaves_out_is_named(forge, tmp_path, key, component, expected):
    value = forge.checkpoint(6)
    del value[key]
    item = only(forge.torch_file(tmp_path / "c.pt", value))
    assert presence(item, component) is Presence.ABSENT
    assert resume(item)[0] is expected


def test_an_optimizer_without_state_is_noticed(forge, tmp_path):
    empty = {"state": {}, "param_groups": [{"lr": 0.1, "params": [0]}]}
    verdict, reasons = resume(only(forge.torch_file(tmp_path / "c.pt", forge.checkpoint(6, optimizer=empty))))
    assert verdict is Verdict.YES_BUT
    assert "an optimizer without state for any parameter" in reasons


@pytest.mark.parametrize("prefix", ["_orig_mod.", "module."])
def test_prefixes_left_by_wrappers_are_noted(forge, tmp_path, prefix):
    weights = {f"{prefix}{name}": tensor for name, tensor in forge.weights().items()}
    answer = only(forge.torch_file(tmp_path / "c.pt", forge.checkpoint(6, model=weights))).answer(
        Intent.WEIGHTS
    )
    assert answer.verdict is Verdict.YES_BUT
    assert prefix in answer.reasons[0]


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (os.system, (f"touch {self.target}",))


def test_a_file_that_runs_a_command_serves_no_intent_and_is_not_run(tmp_path):
    target = tmp_path / "created"
    (tmp_path / "c.pt").write_bytes(pickle.dumps({"model": Bomb(target), "step": 6}))
    item = only(tmp_path / "c.pt")
    assert [danger.names for danger in item.dangers] == [("posix.system",)]
    assert resume(item)[0] is Verdict.NO
    assert "can run commands: it names posix.system" in resume(item)[1]
    assert not target.exists()


def test_clean_weights_stay_usable_beside_a_dangerous_file(trainer):
    (trainer / "training_args.bin").write_bytes(pickle.dumps(Bomb(trainer / "created")))
    item = only(trainer)
    assert item.answer(Intent.WEIGHTS).verdict is Verdict.YES
    assert resume(item)[0] is Verdict.NO


def test_a_torn_newest_checkpoint_is_set_against_the_newest_whole_one(forge, tmp_path):
    for step in (6, 12):
        forge.trainer_checkpoint(tmp_path / f"checkpoint-{step}", step)
    (tmp_path / "checkpoint-12" / "trainer_state.json").unlink()
    found = inspect_path(tmp_path)
    assert found.picked.unit.path == "checkpoint-12"
    assert found.newest_whole.path == "checkpoint-6"
    assert "checkpoint-12 would be taken although it is not whole; checkpoint-6 is" in found.warnings
    assert "checkpoint-6 is the only whole one: there is none to fall back to" in found.warnings


def test_a_higher_number_of_an_older_run_is_noticed(forge, tmp_path):
    for step, age in ((100, 1000), (6, 0), (12, 0)):
        folder = forge.trainer_checkpoint(tmp_path / f"checkpoint-{step}", step)
        for file in folder.iterdir():
            os.utime(file, (1_700_000_000 - age, 1_700_000_000 - age))
    warnings = inspect_path(tmp_path).warnings
    assert any("checkpoint-100 was written before checkpoint-" in warning for warning in warnings)


def test_a_tidy_folder_raises_no_warning(forge, tmp_path):
    for step in (6, 12, 18):
        forge.trainer_checkpoint(tmp_path / f"checkpoint-{step}", step)
    assert inspect_path(tmp_path).warnings == ()


def test_a_path_that_is_no_checkpoint_is_refused_with_a_hint(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path, tmp_path / "notes.txt", tmp_path / "missing"):
        with pytest.raises(CheckpointError) as error:
            inspect_path(path)
        assert error.value.hint
