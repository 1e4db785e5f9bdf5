"""Checkpoints that the real frameworks write are sealed, and what comes back is loaded by the same framework."""

from __future__ import annotations

import importlib.util
import shutil

import pytest

torch = pytest.importorskip("torch")

from samestep.bundle.copying import export  # noqa: E402
from samestep.bundle.placing import other_pick, put_back  # noqa: E402
from samestep.bundle.sealing import Statements, seal  # noqa: E402
from samestep.bundle.storage.opening import open_storage  # noqa: E402
from samestep.bundle.store import Store  # noqa: E402
from samestep.errors import UsageError  # noqa: E402


def needs(module):
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def stated(*names):
    return Statements(rebuilt=dict.fromkeys(names, "by the script, from the step"))


def there_and_back(path, tmp_path, statements=None):
    """Seal a checkpoint, put it back on another machine, and return the store, the bundle and the place."""
    store = Store.create(open_storage(tmp_path / "root"))
    bundle = seal(store.register(store.select(), "test"), path, statements)
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    return store, bundle, put_back(store, bundle, tmp_path / "fresh")


def names_in(folder):
    return {path.name for path in folder.iterdir()}


def saved(bundle):
    return {name for name, row in bundle.manifest.contract.items() if row.state == "saved" and row.parts}


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        tokens = torch.randint(32, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens}


def trainer(out, steps):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed

    set_seed(1)
    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    settings = TrainingArguments(
        str(out), max_steps=steps, save_steps=3, per_device_train_batch_size=4, report_to=[], use_cpu=True,
        disable_tqdm=True,
    )  # fmt: skip
    return Trainer(GPT2LMHeadModel(config), settings, train_dataset=Sentences())


def weights_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@needs("transformers")
def test_a_trainer_goes_on_from_what_was_put_back_as_if_nothing_had_happened(tmp_path):
    straight = trainer(tmp_path / "out", 6)
    straight.train()
    _, bundle, place = there_and_back(tmp_path / "out" / "checkpoint-3", tmp_path)
    assert place == tmp_path / "fresh" / "checkpoint-3"
    assert not bundle.manifest.open_rows
    assert other_pick(place, tmp_path / "fresh") == ""
    resumed = trainer(tmp_path / "fresh", 6)
    resumed.train(resume_from_checkpoint=True)
    assert same(weights_of(straight.model), weights_of(resumed.model))


@needs("transformers")
def test_transformers_opens_the_weights_of_a_bundle_where_they_lie_and_exported(tmp_path):
    from transformers import AutoModelForCausalLM

    straight = trainer(tmp_path / "out", 3)
    straight.train()
    store, bundle, _ = there_and_back(tmp_path / "out" / "checkpoint-3", tmp_path)
    exported = export(store, bundle, tmp_path / "weights")
    assert not {"optimizer.pt", "training_args.bin", "trainer_state.json"} & names_in(exported)
    for folder in (exported, tmp_path / "root" / "bundles" / bundle.id):
        assert same(weights_of(AutoModelForCausalLM.from_pretrained(folder)), weights_of(straight.model))


@needs("lightning")
def test_a_lightning_file_comes_back_and_what_it_lacks_must_be_said(tmp_path):
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch):
            return self.layer(batch).pow(2).mean()

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters())

    def run(**how):
        settings = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = lightning.Trainer(max_steps=4, accelerator="cpu", enable_checkpointing=False, **settings)
        trainer.fit(Module(), torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=2), **how)
        return trainer

    path = tmp_path / "out" / "last.ckpt"
    run().save_checkpoint(path)
    before = path.read_bytes()
    store = Store.create(open_storage(tmp_path / "strict"))
    with pytest.raises(Exception, match="rng: not storable by this framework"):
        seal(store.register(store.select(), "test"), path)
    _, bundle, place = there_and_back(path, tmp_path, stated("rng", "data-order", "data-position", "config"))
    assert {"weights", "optimizer", "progress"} <= saved(bundle)
    assert place == tmp_path / "fresh" / "last.ckpt"
    assert place.read_bytes() == before


def test_a_dcp_folder_comes_back_with_its_dotted_metadata_and_loads(tmp_path):
    from torch.distributed import checkpoint

    model = torch.nn.Linear(3, 2)
    state = {"model": model.state_dict(), "optimizer": {"exp_avg": torch.ones(3)}, "step": 8}
    checkpoint.save(state, checkpoint_id=tmp_path / "step-8", no_dist=True)
    open_rows = ("schedule", "rng", "data-order", "data-position")
    store, bundle, place = there_and_back(tmp_path / "step-8", tmp_path, stated(*open_rows))
    assert place.name == "step-8"
    assert bundle.manifest.framework == "torch-dcp"
    assert set(bundle.manifest.contract["weights"].parts) == {".metadata", "__0_0.distcp"}
    template = {
        "model": torch.nn.Linear(3, 2).state_dict(),
        "optimizer": {"exp_avg": torch.zeros(3)},
        "step": 0,
    }
    checkpoint.load(template, checkpoint_id=place, no_dist=True)
    assert same(template["model"], state["model"])
    assert template["step"] == 8
    with pytest.raises(UsageError, match="shards of torch-dcp"):
        export(store, bundle, tmp_path / "weights")


@needs("accelerate")
def test_an_accelerate_folder_comes_back_and_loads(tmp_path):
    from accelerate import Accelerator

    def prepared():
        accelerator = Accelerator(cpu=True)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(model.parameters())
        return accelerator, *accelerator.prepare(
            model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2)
        )

    accelerator, model, optimizer, _ = prepared()
    accelerator.backward(model(torch.ones(1, 4)).sum())
    optimizer.step()
    expected = weights_of(model)
    accelerator.save_state(str(tmp_path / "out" / "step_7"))
    names = ("data-order", "data-position")
    _, bundle, place = there_and_back(tmp_path / "out" / "step_7", tmp_path, stated(*names))
    assert (bundle.step, bundle.manifest.name) == (7, "step_7")
    assert {"weights", "optimizer", "schedule", "rng"} <= saved(bundle)
    again, model, *_ = prepared()
    again.load_state(str(place))
    assert same(weights_of(model), expected)


@needs("peft")
@needs("transformers")
def test_an_adapter_is_exported_with_its_configuration(tmp_path):
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    config = GPT2Config(vocab_size=32, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    torch.manual_seed(1)
    base = GPT2LMHeadModel(config)
    base.save_pretrained(tmp_path / "base")
    model = get_peft_model(base, LoraConfig(target_modules=["c_attn"], r=2))
    settings = TrainingArguments(
        str(tmp_path / "out"), max_steps=2, save_steps=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    Trainer(model, settings, train_dataset=Sentences()).train()
    store, bundle, _ = there_and_back(tmp_path / "out" / "checkpoint-2", tmp_path)
    exported = export(store, bundle, tmp_path / "weights")
    assert {"adapter_config.json", "adapter_model.safetensors"} <= names_in(exported)
    loaded = PeftModel.from_pretrained(GPT2LMHeadModel.from_pretrained(tmp_path / "base"), exported)
    expected = {name: value for name, value in weights_of(model).items() if "lora" in name}
    assert same({name: value for name, value in weights_of(loaded).items() if "lora" in name}, expected)
