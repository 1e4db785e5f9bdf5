"""Checkpoints that the real frameworks write are read as what they are, and agree with what torch itself loads."""

import importlib.util
import os
import random
import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from samestep.checkpoints import (  # noqa: E402
    Presence,
    Verdict,
    find_units,
    framework_hint,
    inspect_path,
    would_pick,
)
from samestep.checkpoints.containers import read_file  # noqa: E402
from samestep.checkpoints.state import find_components  # noqa: E402
from samestep.contract import Component, Intent  # noqa: E402


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        predicted = self.layer(x)
        return {"loss": ((predicted - labels) ** 2).mean(), "logits": predicted}


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.randn(4, generator=generator), "labels": torch.randn(1, generator=generator)}


def needs(module):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def presence(item, component):
    return next((report.presence for report in item.components if report.component is component), None)


def resume(item):
    return item.answer(Intent.RESUME).verdict


def trained():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(2, 4), torch.randn(2, 1))["loss"].backward()
    optimizer.step()
    return model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)


def train_with_trainer(out, **arguments):
    from transformers import Trainer, TrainingArguments

    callbacks = arguments.pop("callbacks", [])
    settings = TrainingArguments(
        str(out), max_steps=6, save_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        disable_tqdm=True, **arguments,
    )  # fmt: skip
    trainer = Trainer(Net(), settings, train_dataset=Samples(), callbacks=callbacks)
    trainer.train()
    return trainer


@pytest.fixture(scope="module")
def trainer_output(tmp_path_factory):
    pytest.importorskip("transformers")
    out = tmp_path_factory.mktemp("trainer")
    train_with_trainer(out).save_model()
    return out


def test_trainer_checkpoints_serve_every_intent(trainer_output):
    assert [(unit.path, unit.step) for unit in find_units(trainer_output)] == [
        (f"checkpoint-{step}", step) for step in (2, 4, 6)
    ]
    assert framework_hint(trainer_output) == "transformers"
    item = inspect_path(trainer_output).picked
    assert item.unit.path == would_pick(trainer_output).path == "checkpoint-6"
    assert item.whole
    assert [answer.verdict for answer in item.answers] == [Verdict.YES] * 3
    assert {danger.file for danger in item.dangers} == {"checkpoint-6/training_args.bin"}


def test_the_folder_that_inspect_picks_is_the_one_that_the_trainer_picks(trainer_output, tmp_path):
    from transformers.trainer_utils import get_last_checkpoint

    out = shutil.copytree(trainer_output, tmp_path / "out")
    assert Path(get_last_checkpoint(out)).name == would_pick(out).path
    (out / "checkpoint-999").mkdir()
    (out / "checkpoint-2000-backup").mkdir()
    assert Path(get_last_checkpoint(out)).name == would_pick(out).path == "checkpoint-999"


@needs("transformers")
def test_a_model_only_checkpoint_of_the_trainer_does_not_resume(tmp_path):
    train_with_trainer(tmp_path, save_only_model=True)
    item = inspect_path(tmp_path).picked
    assert item.whole
    assert resume(item) is Verdict.NO


@needs("transformers")
def test_callbacks_that_the_trainer_stores_and_does_not_load_are_named(tmp_path):
    from transformers import EarlyStoppingCallback

    class Patient(EarlyStoppingCallback):
        def on_train_begin(self, *arguments, **named):
            """Nothing is evaluated here; only the stored state matters."""

    train_with_trainer(tmp_path, callbacks=[Patient(3)])
    item = inspect_path(tmp_path).picked
    assert presence(item, Component.CALLBACKS) is Presence.NOT_LOADED
    assert resume(item) is Verdict.YES_BUT


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json", "model.safetensors"]
)
def test_each_file_of_a_trainer_checkpoint_is_missed_and_its_damage_seen(trainer_output, tmp_path, name):
    for change in (Path.unlink, lambda path: os.truncate(path, path.stat().st_size // 2)):
        folder = shutil.copytree(trainer_output / "checkpoint-6", tmp_path / "checkpoint-6")
        change(folder / name)
        found = inspect_path(folder)
        assert not found.inspections[0].whole
        assert resume(found.inspections[0]) is Verdict.NO
        shutil.rmtree(folder)


@needs("peft")
def test_an_adapter_needs_a_base_model(tmp_path):
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(target_modules=["layer"], base_model_name_or_path="tiny/base")
    get_peft_model(Net(), config).save_pretrained(tmp_path)
    answer = inspect_path(tmp_path).inspections[0].answer(Intent.WEIGHTS)
    assert answer.verdict is Verdict.YES_BUT
    assert any("it is an adapter and needs" in reason for reason in answer.reasons)


@needs("accelerate")
def test_accelerate_checkpoints_are_whole_but_keep_no_step(tmp_path):
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    project = ProjectConfiguration(project_dir=str(tmp_path), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=project)
    model, optimizer, schedule = accelerator.prepare(*trained())
    for _ in range(2):
        model(torch.randn(2, 4), torch.randn(2, 1))["loss"].backward()
        optimizer.step()
        schedule.step()
        accelerator.save_state()
    found = inspect_path(tmp_path)
    assert [item.unit.framework for item in found.inspections] == ["accelerate"] * 2
    assert found.picked.unit.path == "checkpoints/checkpoint_1"
    assert found.picked.whole
    assert presence(found.picked, Component.PROGRESS) is Presence.NOT_STORABLE
    assert resume(found.picked) is Verdict.YES_BUT


@pytest.fixture(scope="module")
def lightning_output(tmp_path_factory):
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = Net()

        def training_step(self, batch, _):
            return self.net(**batch)["loss"]

        def configure_optimizers(self):
            optimizer = torch.optim.Adam(self.parameters())
            return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 2)]

    out = tmp_path_factory.mktemp("lightning")
    saver = ModelCheckpoint(dirpath=out, every_n_train_steps=3, save_top_k=-1, save_last=True)
    trainer = lightning.Trainer(
        max_steps=6, accelerator="cpu", logger=False, enable_progress_bar=False, callbacks=[saver],
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Module(), torch.utils.data.DataLoader(Samples(), batch_size=4))
    trainer.save_checkpoint(out / "weights.ckpt", weights_only=True)
    return out


def test_lightning_checkpoints_lack_generators_and_the_place_in_the_data(lightning_output):
    found = inspect_path(lightning_output)
    assert [item.unit.step for item in found.inspections] == [3, 6, 6]
    assert found.picked.unit.path == "last.ckpt"
    assert presence(found.picked, Component.RNG) is Presence.NOT_STORABLE
    assert presence(found.picked, Component.DATA_POSITION) is Presence.ABSENT
    assert resume(found.picked) is Verdict.YES_BUT


def test_a_lightning_file_with_weights_only_is_told_apart(lightning_output):
    item = inspect_path(lightning_output / "weights.ckpt").inspections[0]
    assert (item.answer(Intent.WEIGHTS).verdict, resume(item)) == (Verdict.YES, Verdict.NO)


@pytest.fixture
def dcp_folder(tmp_path):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    model, optimizer, schedule = trained()
    weights, moments = get_state_dict(model, optimizer)
    state = {"model": weights, "optim": moments, "lr_scheduler": schedule.state_dict(), "step": 6}
    dcp.save(state, checkpoint_id=str(tmp_path / "step-6"))
    return tmp_path / "step-6"


def test_a_dcp_folder_shows_its_components_and_step(dcp_folder):
    item = inspect_path(dcp_folder).inspections[0]
    assert (item.unit.framework, item.unit.step, item.whole) == ("torch-dcp", 6, True)
    for component in (Component.WEIGHTS, Component.OPTIMIZER, Component.SCHEDULE, Component.PROGRESS):
        assert presence(item, component) is Presence.PRESENT
    assert item.dangers == ()


def test_a_dcp_folder_without_metadata_or_with_a_short_shard_is_not_whole(dcp_folder):
    shard = next(dcp_folder.glob("*.distcp"))
    size = shard.stat().st_size
    os.truncate(shard, size - 2000)
    item = inspect_path(dcp_folder).inspections[0]
    assert [problem.file for problem in item.problems] == [shard.name]
    (dcp_folder / ".metadata").unlink()
    item = inspect_path(dcp_folder).inspections[0]
    assert str(item.problems[0]) == ".metadata is missing: it is written last, so the save did not end"
    assert resume(item) is Verdict.NO


class Bomb:
    def __init__(self, target):
        self.target = target

    def __reduce__(self):
        return (os.system, (f"touch {self.target}",))


def test_a_command_inside_a_dcp_shard_is_found_and_not_run(tmp_path):
    import torch.distributed.checkpoint as dcp

    dcp.save(
        {"model": Net().state_dict(), "extra": Bomb(tmp_path / "created")},
        checkpoint_id=str(tmp_path / "step-1"),
    )
    item = inspect_path(tmp_path / "step-1").inspections[0]
    assert [danger.names for danger in item.dangers if danger.severe] == [("posix.system",)]
    assert not (tmp_path / "created").exists()


@pytest.mark.parametrize("zipped", [True, False])
def test_a_command_inside_a_torch_file_is_found_and_not_run(tmp_path, zipped):
    path, target = tmp_path / "c.pt", tmp_path / "created"
    torch.save(
        {"model": Net().state_dict(), "extra": Bomb(target)}, path, _use_new_zipfile_serialization=zipped
    )
    item = inspect_path(path).inspections[0]
    assert [danger.names for danger in item.dangers] == [("posix.system",)]
    assert all(answer.verdict is Verdict.NO for answer in item.answers)
    assert not target.exists()
    torch.load(path, weights_only=False)
    assert target.exists(), "the bomb is a dud: this test could not fail"


def careful_state():
    model, optimizer, schedule = trained()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": schedule.state_dict(),
        "scaler": torch.amp.GradScaler("cpu").state_dict(),
        "rng": {"python": random.getstate(), "torch": torch.get_rng_state()},
        "sampler": {"position": 24},
        "step": 6,
        "config": {"width": 4},
    }


@pytest.mark.parametrize("zipped", [True, False])
def test_what_is_read_from_headers_is_what_torch_loads(tmp_path, zipped):
    path = tmp_path / "c.pt"
    torch.save(careful_state(), path, _use_new_zipfile_serialization=zipped)
    facts, loaded = read_file(path), torch.load(path, weights_only=True)
    assert facts.problem == ""
    assert list(facts.mapping) == list(loaded)
    for key in ("step", "config", "sampler", "scheduler", "scaler"):
        assert facts.mapping[key] == loaded[key]
    assert facts.mapping["rng"]["python"] == loaded["rng"]["python"]
    assert facts.mapping["optimizer"]["param_groups"] == loaded["optimizer"]["param_groups"]
    assert resume(inspect_path(path).inspections[0]) is Verdict.YES


def test_every_file_that_torch_cannot_load_for_being_cut_off_is_not_whole(tmp_path):
    path = tmp_path / "c.pt"
    torch.save(careful_state(), path)
    size = path.stat().st_size
    for keep in range(0, size, max(1, size // 25)):
        torch.save(careful_state(), path)
        os.truncate(path, keep)
        assert read_file(path).problem


@pytest.mark.parametrize(
    "make",
    [
        torch.optim.lr_scheduler.CosineAnnealingLR, torch.optim.lr_scheduler.ExponentialLR,
        torch.optim.lr_scheduler.StepLR,
    ],
)  # fmt: skip
def test_schedules_and_optimizers_are_known_by_structure_under_any_name(tmp_path, make):
    model, _, _ = trained()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.save(
        {"a": model.state_dict(), "b": optimizer.state_dict(), "c": make(optimizer, 2).state_dict()},
        tmp_path / "c.pt",
    )
    found = find_components(read_file(tmp_path / "c.pt").value)
    assert found == {
        Component.WEIGHTS: ["a"],
        Component.OPTIMIZER: ["b"],
        Component.SCHEDULE: ["c"],
    }


def test_averaged_weights_are_told_from_raw_ones(tmp_path):
    averaged = torch.optim.swa_utils.AveragedModel(Net())
    torch.save({"net": Net().state_dict(), "other": averaged.state_dict()}, tmp_path / "c.pt")
    found = find_components(read_file(tmp_path / "c.pt").value)
    assert found[Component.EMA] == ["other"]
