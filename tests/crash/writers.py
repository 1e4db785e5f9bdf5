"""Programs that save as training jobs do. Each gets its folder, one on another file system, and seconds to pause."""

from __future__ import annotations

from dataclasses import dataclass, field

PRELUDE = """
import os, shutil, sys, tempfile, time
out, elsewhere, pause = sys.argv[1], sys.argv[2], float(sys.argv[3])
def write(path, size=90_000):
    with open(path, "wb") as file:
        for _ in range(3):
            file.write(os.urandom(size // 3)); file.flush(); time.sleep(pause / 6)
"""

BY_RENAME = """
def save(name):
    with open(f"{out}/{name}.tmp", "wb") as file:
        for _ in range(3):
            file.write(os.urandom(30_000)); file.flush(); time.sleep(pause / 6)
        if SYNC: os.fsync(file.fileno())
    os.replace(f"{out}/{name}.tmp", f"{out}/{name}")
    if SYNC_FOLDER:
        folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY); os.fsync(folder); os.close(folder)
save("new.pt"); time.sleep(pause); save("kept.pt")
"""

IN_PLACE = """
import torch
def state(): return {"weight": torch.randn(200, 100), "bias": torch.randn(100)}
torch.save(state(), f"{out}/new.pt"); time.sleep(pause); torch.save(state(), f"{out}/kept.pt")
"""

SAFETENSORS = """
import numpy; from safetensors.numpy import save_file
def save(name): save_file({"weight": numpy.random.rand(10_000)}, f"{out}/{name}")
save("new.safetensors"); time.sleep(pause); save("kept.safetensors")
"""

ROTATION = """
import numpy; from safetensors.numpy import save_file
for step in (2, 3):
    folder = f"{out}/checkpoint-{step}"; os.mkdir(folder); write(f"{folder}/config.json", 600)
    save_file({"weight": numpy.random.rand(7_500)}, f"{folder}/model.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "trainer_state.json"): write(f"{folder}/{name}", 9_000)
    shutil.rmtree(f"{out}/checkpoint-{step - 1}"); time.sleep(pause)
"""

MOVED_IN = """
def save(name):
    handle, staged = tempfile.mkstemp(dir=elsewhere); os.close(handle)
    write(staged); shutil.move(staged, f"{out}/{name}")
save("step-2.ckpt"); save("last.ckpt"); time.sleep(pause); os.unlink(f"{out}/step-1.ckpt")
"""

DCP = """
import torch, torch.distributed.checkpoint as dcp
state = {"weight": torch.randn(200, 100), "bias": torch.randn(100)}
dcp.save(state, checkpoint_id=f"{out}/s1"); time.sleep(pause); dcp.save(state, checkpoint_id=f"{out}/s2")
"""

TRAINER = """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments
class Pause(TrainerCallback):
    def on_save(self, *_, **__): time.sleep(pause)
config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50)
data = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(16)]
arguments = TrainingArguments(out, max_steps=4, save_steps=2, save_total_limit=1, per_device_train_batch_size=2,
    report_to=[], use_cpu=True, disable_tqdm=True)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=data, callbacks=[Pause()]).train()
"""

LIGHTNING = """
import torch, lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
tempfile.tempdir = elsewhere
class Model(L.LightningModule):
    def __init__(self): super().__init__(); self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _): return self.layer(batch).sum()
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
    def on_train_batch_end(self, *_): time.sleep(pause / 2)
loader = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2)
saves = ModelCheckpoint(out, every_n_train_steps=2, save_top_k=1, save_last=True)
L.Trainer(max_steps=4, callbacks=[saves], logger=False, accelerator="cpu", enable_progress_bar=False,
    enable_model_summary=False).fit(Model(), loader)
"""


@dataclass(frozen=True)
class Writer:
    """A program and what is there before it begins: path and size of each file."""

    script: str
    base: dict[str, int] = field(default_factory=dict)


def _by_rename(*, sync, sync_folder):
    flags = f"SYNC, SYNC_FOLDER = {sync}, {sync_folder}\n"
    return Writer(PRELUDE + flags + BY_RENAME, {"kept.pt": 70_000})


WRITERS = {
    "torch.save in place": Writer(PRELUDE + IN_PLACE, {"kept.pt": 70_000}),
    "rename": _by_rename(sync=False, sync_folder=False),
    "fsync, rename": _by_rename(sync=True, sync_folder=False),
    "fsync, rename, fsync of the folder": _by_rename(sync=True, sync_folder=True),
    "safetensors": Writer(PRELUDE + SAFETENSORS, {"kept.safetensors": 70_000}),
    "folders with rotation": Writer(
        PRELUDE + ROTATION,
        {
            f"checkpoint-1/{name}": 9_000
            for name in ("model.safetensors", "optimizer.pt", "trainer_state.json")
        },
    ),
    "moved from another file system": Writer(
        PRELUDE + MOVED_IN, {"step-1.ckpt": 70_000, "last.ckpt": 70_000}
    ),
    "DCP": Writer(PRELUDE + DCP),
    "HF Trainer": Writer(PRELUDE + TRAINER),
    "Lightning": Writer(PRELUDE + LIGHTNING),
}
"""All writers by name."""

QUICK = (
    "torch.save in place",
    "rename",
    "fsync, rename, fsync of the folder",
    "safetensors",
    "folders with rotation",
)
"""Those that a short run tries."""
