"""Operation for operation, the recorder sees what strace sees in the same run: nothing is missed, nothing invented."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import strace_log
from samestep.crash.operations import Kind
from samestep.crash.recorder.proof import prove

INSTALL = Path(__file__).parents[2] / "scripts" / "install_strace.sh"
EXTRA = {Kind.CLOSE, Kind.STORED, Kind.MARK, Kind.SYNC_ALL}


@pytest.fixture(scope="session")
def strace():
    """Make sure that strace is there and may trace."""
    if not shutil.which("strace"):
        subprocess.run([INSTALL], check=False, capture_output=True, timeout=300)
    works = (
        shutil.which("strace")
        and subprocess.run(["strace", "-o", os.devnull, "true"], check=False).returncode == 0
    )
    if not works:
        pytest.skip("strace is not there, could not be installed, or may not trace here")


def recorded(recording):
    """Return, by thread, what the recorder saw succeed, in the words of the oracle."""
    threads = {}
    for operation in recording.operations:
        if operation.derived or operation.kind in EXTRA or operation.errno or operation.call == "msync":
            continue
        paths = (
            (operation.path, operation.target)
            if operation.kind in {Kind.RENAME, Kind.LINK}
            else (operation.path,)
        )
        size = operation.size if operation.kind is Kind.WRITE else 0
        threads.setdefault(operation.tid, []).append(strace_log.Seen(operation.call, paths, size))
    return threads


def compare(bench, argv, **options):
    """Run a command under both at once."""
    calls = bench.folder / "strace"
    recording = bench.start(strace_log.command(calls, argv), **options)
    assert recording.header.exit_code == 0, bench.log.read_text()
    assert recording.header.complete, recording.header.notes
    assert recorded(recording) == strace_log.read(calls, str(bench.out), str(bench.folder))
    assert prove(recording, bench.out) == []
    return sum(not operation.derived for operation in recording.operations)


LIGHT = {
    "shutil": """
import os, shutil
os.makedirs("out/a/b"); open("out/a/x", "wb").write(os.urandom(70_000)); os.symlink("x", "out/a/l")
shutil.copytree("out/a", "out/c", symlinks=True); shutil.copy2("out/a/x", "out/y"); shutil.move("out/c", "out/d")
shutil.make_archive("out/z", "tar", "out/d"); shutil.rmtree("out/d")
open("plain", "w").write("1"); shutil.move("plain", "out/plain"); os.link("out/plain", "out/twin")
""",
    "numpy": """
import os, numpy as np
os.mkdir("out"); array = np.arange(50_000.)
np.save("out/a.npy", array); np.savez("out/b.npz", x=array, y=array[:3]); np.savez_compressed("out/c.npz", x=array)
array.tofile("out/raw"); np.savetxt("out/text", array[:50])
mapped = np.memmap("out/m", dtype="f8", mode="w+", shape=1000); mapped[:] = 1; mapped.flush(); del mapped
""",
    "torch": """
import io, os, torch
os.mkdir("out"); state = {str(i): torch.randn(300, 30) for i in range(4)}
torch.save(state, "out/path.pt")
with open("out/file.pt", "wb") as file: torch.save(state, file)
torch.save(state, "out/legacy.pt", _use_new_zipfile_serialization=False)
torch.save(state, "out/path.pt.tmp"); os.replace("out/path.pt.tmp", "out/path.pt")
""",
    "safetensors": """
import os, torch
from safetensors.torch import save_file
os.mkdir("out")
for _ in range(2): save_file({"a": torch.randn(500, 100)}, "out/model.safetensors", metadata={"format": "pt"})
""",
    "careful": """
import os, sqlite3, tempfile
os.mkdir("out")
with tempfile.NamedTemporaryFile(dir="out", delete=False) as file:
    file.write(b"x" * 100_000); file.flush(); os.fsync(file.fileno())
os.replace(file.name, "out/final"); folder = os.open("out", os.O_RDONLY | os.O_DIRECTORY); os.fsync(folder)
with sqlite3.connect("out/db") as db:
    db.execute("create table t (x)"); db.executemany("insert into t values (?)", [(i,) for i in range(500)])
""",
}

SHELL = """mkdir out && echo one > out/a && cat out/a out/a >> out/b && dd if=/dev/zero of=out/z bs=4k count=3 2>&1 &&
cp -a out copied && mv copied out/copied && ln out/a out/hard && gzip -k out/z && tar cf out/t.tar -C out a b &&
sed -i s/one/two/ out/a && truncate -s 5 out/b && rm -r out/copied && sync out/a"""


@pytest.mark.parametrize("name", LIGHT)
def test_libraries_are_seen_in_full(strace, bench, name):
    assert compare(bench, [sys.executable, "-c", LIGHT[name]]) > 5


def test_shell_tools_are_seen_in_full(strace, bench):
    assert compare(bench, ["sh", "-c", SHELL]) > 20


def test_static_programs_are_seen_in_full(strace, bench):
    source = """
#include <stdio.h>
#include <unistd.h>
int main(void) {
  for (int i = 0; i < 3; i++) {
    FILE *file = fopen("out/tmp", "w"); for (int j = 0; j < 5000; j++) fprintf(file, "%d", j);
    fflush(file); fsync(fileno(file)); fclose(file);
    if (rename("out/tmp", "out/final")) return 1;
  }
  return 0;
}"""
    (bench.folder / "writer.c").write_text(source)
    build = ["gcc", "-static", "-o", "w", "writer.c"]
    if not shutil.which("gcc") or subprocess.run(build, cwd=bench.folder, check=False).returncode:
        pytest.skip("gcc or a static C library is not installed")
    bench.out.mkdir()
    assert compare(bench, ["./w"]) > 15


HEAVY = {
    "transformers-rotation": """
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
config = BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=50)
data = [{"input_ids": torch.arange(8), "labels": torch.tensor(i % 2)} for i in range(16)]
arguments = TrainingArguments("out", max_steps=6, save_steps=2, save_total_limit=1, per_device_train_batch_size=2,
    report_to=[], use_cpu=True, disable_tqdm=True)
Trainer(BertForSequenceClassification(config), arguments, train_dataset=data).train()
""",
    "accelerate": """
import torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(20, 20); optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
for _ in range(2):
    model(torch.randn(3, 20)).sum().backward(); optimizer.step(); schedule.step()
    accelerator.save_state("out/state")
""",
    "lightning": """
import torch, lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
class Model(L.LightningModule):
    def __init__(self): super().__init__(); self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, _): return self.layer(batch).sum()
    def configure_optimizers(self): return torch.optim.AdamW(self.parameters())
loader = torch.utils.data.DataLoader(torch.randn(8, 4), batch_size=2)
saves = ModelCheckpoint("out", every_n_train_steps=2, save_top_k=1, save_last=True)
L.Trainer(max_steps=6, callbacks=[saves], logger=False, accelerator="cpu", enable_progress_bar=False,
    enable_model_summary=False).fit(Model(), loader)
""",
    "dcp": """
import os, torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "localhost"); os.environ.setdefault("MASTER_PORT", "0")
    if "RANK" not in os.environ: os.environ.update(RANK="0", WORLD_SIZE="1")
    dist.init_process_group("gloo")
    rank = dist.get_rank(); state = {f"w{i}-{rank}": torch.randn(200, 50) for i in range(3)}
    dcp.save(state, checkpoint_id="out/sync"); dcp.save(state, checkpoint_id="out/sync")
    dcp.save(state, storage_writer=dcp.FileSystemWriter("out/unsynced", sync_files=False))
    dcp.async_save(state, checkpoint_id="out/thread").result()
    if dist.get_world_size() == 1:
        kind = AsyncCheckpointerType.PROCESS
        dcp.async_save(state, checkpoint_id="out/process", async_checkpointer_type=kind).result()
    dist.barrier(); dist.destroy_process_group()
""",
}


def script(bench, name):
    (bench.folder / "train.py").write_text(HEAVY[name])
    return "train.py"


@pytest.mark.full
@pytest.mark.parametrize("name", HEAVY)
def test_frameworks_are_seen_in_full(strace, bench, name):
    assert compare(bench, [sys.executable, script(bench, name)], timeout=400) > 10


@pytest.mark.full
def test_lightning_is_seen_in_full_when_its_temporary_folder_is_elsewhere(strace, bench, tmp_path_factory):
    if Path("/dev/shm").stat().st_dev == bench.folder.stat().st_dev:
        pytest.skip("no second file system at /dev/shm")
    argv = [sys.executable, script(bench, "lightning")]
    assert compare(bench, argv, timeout=400, env={"TMPDIR": "/dev/shm"}) > 10


@pytest.mark.full
def test_two_ranks_are_seen_in_full(strace, bench):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    assert compare(bench, [*launcher, script(bench, "dcp")], timeout=400) > 20
