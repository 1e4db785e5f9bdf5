"""Which component lies in which file, and what the contract says about the others."""

from __future__ import annotations

import json

import pytest

from forging import Forge
from samestep.bundle.contracts import components_by_part, contract_of, rank_of, ranks_of
from samestep.bundle.folders import look_at
from samestep.bundle.manifest import COMPONENTS
from samestep.errors import UsageError


@pytest.fixture
def forge():
    return Forge()


def contract(path, **stated):
    checkpoint = look_at(path)
    return contract_of(
        checkpoint.inspection,
        list(checkpoint.files),
        irrelevant=stated.get("irrelevant", {}),
        rebuilt=stated.get("rebuilt", {}),
    )


def states(rows):
    return {name: row.state for name, row in rows.items()}


def test_a_trainer_checkpoint_leaves_no_row_open(forge, tmp_path):
    rows = contract(forge.trainer_checkpoint(tmp_path / "checkpoint-240", 240))
    assert states(rows) == {
        "weights": "saved",
        "optimizer": "saved",
        "schedule": "saved",
        "scaler": "irrelevant",
        "rng": "saved",
        "data-order": "rebuilt",
        "data-position": "rebuilt",
        "accumulation": "irrelevant",
        "progress": "saved",
        "ema": "irrelevant",
        "callbacks": "irrelevant",
        "config": "saved",
        "environment": "saved",
        "world": "saved",
    }
    assert rows["weights"].parts == ("model.safetensors",)
    assert rows["optimizer"].parts == ("optimizer.pt",)
    assert rows["progress"].parts == ("trainer_state.json",)
    assert rows["data-position"].how.startswith("from the step")
    assert rows["data-position"].test == "samestep drill --only cut"
    assert "HF Trainer" in rows["scaler"].because


def test_every_rank_and_every_shard_carries_its_component(forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "checkpoint-3", 3)
    (folder / "model.safetensors").unlink()
    shards = {f"layer.{n}": f"model-0000{n}-of-00002.safetensors" for n in (1, 2)}
    for name, shard in shards.items():
        forge.safetensors(folder / shard, name)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (folder / "rng_state.pth").rename(folder / "rng_state_0.pth")
    forge.torch_file(folder / "rng_state_1.pth", {"python": (3, (1, 2), None), "cpu": Forge.Tensor(16)})
    rows = contract(folder)
    assert rows["weights"].parts == tuple(sorted(shards.values()))
    assert rows["rng"].parts == ("rng_state_0.pth", "rng_state_1.pth")
    assert ranks_of(rows["rng"].parts) == 2


def test_a_part_lists_all_components_that_it_carries(forge, tmp_path):
    forge.torch_file(tmp_path / "ckpt.pt", forge.checkpoint(8))
    parts = components_by_part(contract(tmp_path / "ckpt.pt", rebuilt={"data-order": "from the seed"}))
    assert parts == {
        "ckpt.pt": ("weights", "optimizer", "schedule", "rng", "data-position", "progress", "config")
    }


def test_files_of_a_script_are_told_apart_by_what_they_hold(forge, tmp_path):
    folder = tmp_path / "step-8"
    forge.torch_file(folder / "model.pt", forge.weights())
    forge.torch_file(folder / "optimizer.pt", forge.optimizer())
    forge.torch_file(folder / "scheduler.pt", forge.schedule(8))
    rows = contract(folder)
    assert rows["weights"].parts == ("model.pt",)
    assert rows["optimizer"].parts == ("optimizer.pt",)
    assert rows["schedule"].parts == ("scheduler.pt",)
    assert rows["progress"].state == "saved"
    assert rows["rng"].state == rows["data-position"].state == rows["data-order"].state == "open"
    assert rows["rng"].because == "absent: dropout, shuffling and augmentation differ after a restart"


def test_a_schedule_that_the_trainer_would_skip_is_open(forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "checkpoint-3", 3, callbacks=["EarlyStoppingCallback"])
    row = contract(folder)["callbacks"]
    assert row.state == "open"
    assert not row.parts
    assert "will not load it by default" in row.because


def test_what_the_user_states_stands_in_the_row(forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "checkpoint-3", 3, callbacks=["EarlyStoppingCallback"])
    rows = contract(folder, irrelevant={"callbacks": "never stops early"}, rebuilt={"rng": "no random draw"})
    assert (rows["callbacks"].state, rows["callbacks"].because) == ("irrelevant", "never stops early")
    assert (rows["rng"].state, rows["rng"].how) == ("rebuilt", "no random draw")
    assert rows["rng"].test == "stated when it was sealed"


def test_a_component_that_does_not_exist_is_named_with_those_that_do(forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "checkpoint-3", 3)
    with pytest.raises(UsageError, match="no component 'optimiser'") as raised:
        contract(folder, irrelevant={"optimiser": "x"})
    assert "optimizer" in raised.value.hint


def test_a_component_cannot_be_stated_twice(forge, tmp_path):
    folder = forge.trainer_checkpoint(tmp_path / "checkpoint-3", 3)
    with pytest.raises(UsageError, match="both irrelevant and rebuilt"):
        contract(folder, irrelevant={"rng": "x"}, rebuilt={"rng": "y"})


@pytest.mark.parametrize(
    ("part", "rank"),
    [
        ("rng_state_3.pth", 3),
        ("random_states_0.pkl", 0),
        ("bf16_zero_pp_rank_5_mp_rank_00_optim_states.pt", 5),
        ("__2_0.distcp", 2),
        ("pytorch_model_fsdp_0/__1_0.distcp", 1),
        ("state-rank-7.pt", 7),
        ("model-00001-of-00002.safetensors", None),
        ("model.safetensors", None),
    ],
)
def test_the_rank_that_wrote_a_file_is_told_by_its_name(part, rank):
    assert rank_of(part) == rank


def test_every_component_has_a_row(forge, tmp_path):
    forge.torch_file(tmp_path / "ckpt.pt", forge.checkpoint(8))
    assert tuple(contract(tmp_path / "ckpt.pt")) == COMPONENTS
