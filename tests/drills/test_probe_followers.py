"""Sample indices, averages, reachable state and durable files of real training scripts, recorded by the real probe."""

import ast
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

import samestep
from samestep.trace import ORDERS_VARIABLE, Orders, Trace, load_traces

pytest.importorskip("torch")

LINEAR = """
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

def data(size=24):
    numbers = torch.arange(size)
    return TensorDataset(numbers[:, None].float().repeat(1, 3), numbers)

def seen(ids):
    print("IDS", [int(i) for i in ids], flush=True)

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

def update(x):
    optimizer.zero_grad()
    loss = net(x).pow(2).mean() / 100
    loss.backward()
    optimizer.step()
    return loss
"""


@dataclass
class Run:
    trace: Trace | None
    output: str
    out: Path

    @property
    def ids(self):
        """Ids that the script itself printed, batch by batch."""
        return [ast.literal_eval(line[4:]) for line in self.output.splitlines() if line.startswith("IDS ")]

    @property
    def samples(self):
        return [micro.samples for step in self.trace.steps for micro in step.micro_steps]

    def events(self, name):
        return [event.detail for event in self.trace.events if event.name == name]


@pytest.fixture
def watched(tmp_path):
    """Run a script under the probe and return what was recorded."""

    def run(script, *arguments, prelude=LINEAR, attempt="first", probe=True, **orders):
        folder, out = tmp_path / attempt, tmp_path / "out"
        folder.mkdir()
        out.mkdir(exist_ok=True)
        file = folder / "script.py"
        file.write_text(prelude + textwrap.dedent(script))
        Orders(attempt=attempt, trace_folder=str(folder), durable=str(out), **orders).write(
            folder / "orders.json"
        )
        environment = {
            **os.environ,
            "PYTHONPATH": str(Path(samestep.__file__).parent / "probe" / "site"),
            **({ORDERS_VARIABLE: str(folder / "orders.json")} if probe else {}),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }
        command = [sys.executable, str(file), str(out), *arguments]
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        (trace,) = load_traces(folder) if probe else (None,)
        return Run(trace, done.stdout, out)

    return run


# -- loaders -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", ["", "num_workers=2", "num_workers=2, persistent_workers=True, prefetch_factor=3"]
)
@pytest.mark.parametrize(
    "given", ["x", "x * 1.5 + torch.rand(1)"], ids=["as-delivered", "altered-on-the-way"]
)
def test_indices_are_those_of_the_batch_that_was_fed(watched, options, given):
    run = watched(
        f"""
        loader = DataLoader(data(), 4, shuffle=True, {options})
        for epoch in range(2):
            for x, ids in loader:
                seen(ids)
                update({given})
        """
    )

    assert len(run.ids) == 12
    assert run.samples == run.ids


@pytest.mark.parametrize("given", ["x", "x * 1.5"])
def test_evaluation_loaders_do_not_pollute(watched, given):
    run = watched(
        f"""
        loader, other = DataLoader(data(), 4, shuffle=True), DataLoader(data(40), 2)
        batches = iter(loader)
        ahead = next(batches)
        for step in range(5):
            (x, ids), ahead = ahead, next(batches)
            net.eval()
            with torch.no_grad():
                for y, _ in other:
                    net(y)
            net.train()
            seen(ids)
            update({given})
        """
    )

    assert run.samples == run.ids


def test_a_long_evaluation_does_not_crowd_out_a_batch_that_is_held_back(watched):
    run = watched(
        """
        batches, other = iter(DataLoader(data(), 4, shuffle=True)), DataLoader(data(700), 1)
        ahead = next(batches)
        for step in range(3):
            (x, ids), ahead = ahead, next(batches)
            for y, _ in other:
                pass
            seen(ids)
            update(x)
        """
    )

    assert run.samples == run.ids


@pytest.mark.parametrize("given", ["x", "x.double().float() / 3"])
def test_batches_skipped_by_hand_are_not_taken_for_fed(watched, given):
    run = watched(
        f"""
        for number, (x, ids) in enumerate(DataLoader(data(), 4, shuffle=True)):
            if number < 3:
                continue
            seen(ids)
            update({given})
        """
    )

    assert len(run.ids) == 3
    assert run.samples == run.ids


def test_an_accumulation_window_fetched_at_once_is_told_apart(watched):
    run = watched(
        """
        batches = iter(DataLoader(data(48), 2, shuffle=True))
        for step in range(2):
            window = [next(batches) for _ in range(12)]
            optimizer.zero_grad()
            for x, ids in window:
                seen(ids)
                net(x).pow(2).mean().backward()
            optimizer.step()
        """
    )

    assert [len(step.micro_steps) for step in run.trace.steps] == [12, 12]
    assert run.samples == run.ids


def test_nested_batches_and_samplers_of_ones_own_are_followed(watched):
    run = watched(
        """
        class Named(Dataset):
            def __getitem__(self, key):
                return int(key[1]) * torch.ones(3)

        def collate(items):
            return {"inner": [{"x": torch.stack(items)}], "note": "text", "count": len(items)}

        batches = [[("s", 1), ("s", 2)], [("s", 3)]]
        for batch in DataLoader(Named(), batch_sampler=batches, collate_fn=collate):
            update(batch["inner"][0]["x"])
        for x in DataLoader(Named(), batch_size=None, sampler=[("t", 7)]):
            update(x)
        """
    )

    text = run.samples[0][0][0]
    assert text.startswith("text:")
    assert run.samples[:2] == [[[text, 1], [text, 2]], [[text, 3]]]
    assert run.samples[2][0][1] == 7


def test_two_forwards_on_one_batch_and_one_on_noise_keep_the_batch(watched):
    run = watched(
        """
        for x, ids in DataLoader(data(), 4, shuffle=True):
            seen(ids)
            optimizer.zero_grad()
            (net(torch.rand(4, 3)) + net(x) + net(x)).mean().backward()
            optimizer.step()
        """
    )

    assert run.samples[1:] == run.ids[1:]


@pytest.mark.parametrize(
    ("loader", "why"),
    [
        ("DataLoader(Stream(), 2)", "IterableDataset"),
        ("DataLoader(data(), 4, num_workers=2, in_order=False)", "in_order=False"),
    ],
)
def test_indices_that_cannot_be_known_are_left_out_and_said_to_be(watched, loader, why):
    run = watched(
        f"""
        class Stream(IterableDataset):
            def __iter__(self):
                return ((torch.rand(3), i) for i in range(8))

        for x, ids in {loader}:
            update(x)
        """
    )

    assert set(map(str, run.samples)) == {"None"}
    assert any(why in str(detail) for detail in run.events("not-followed"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_is_followed_through_a_resume(watched, workers):
    pytest.importorskip("torchdata")
    script = f"""
        import sys
        from torchdata.stateful_dataloader import StatefulDataLoader
        loader = StatefulDataLoader(data(), 4, shuffle=True, num_workers={workers})
        file = sys.argv[1] + "/loader.pt"
        resumed = len(sys.argv) > 2
        if resumed:
            loader.load_state_dict(torch.load(file))
        for number, (x, ids) in enumerate(loader, start=1):
            seen(ids)
            update(x)
            if number == 2 and not resumed:
                torch.save(loader.state_dict(), file)
        """

    first = watched(script)
    second = watched(script, "resume", attempt="second")

    assert first.samples == first.ids
    assert second.samples == second.ids == first.ids[2:]
    assert {"path": "loader.pt"} in second.events("read")


@pytest.mark.parametrize("given", ["x", "x * 1.5"])
@pytest.mark.parametrize("workers", [0, 2])
def test_accelerates_look_ahead_and_skipped_batches_are_followed(watched, given, workers):
    pytest.importorskip("accelerate")
    run = watched(
        f"""
        from accelerate import Accelerator
        accelerator = Accelerator(cpu=True)
        net, optimizer, loader, other = accelerator.prepare(
            net, optimizer, DataLoader(data(), 4, shuffle=True, num_workers={workers}), DataLoader(data(40), 8)
        )
        first = accelerator.skip_first_batches(loader, 2)
        for batches in (first, loader):
            for number, (x, ids) in enumerate(batches):
                seen(ids)
                update({given})
                if number % 2:
                    net.eval()
                    for y, _ in other:
                        net(y)
                    net.train()
        """
    )

    assert len(run.ids) == 10
    assert run.samples == run.ids


def test_watching_changes_neither_batches_nor_losses(watched):
    script = """
        loader = DataLoader(data(), 4, shuffle=True, num_workers=2, persistent_workers=True)
        for epoch in range(2):
            for x, ids in loader:
                seen(ids)
                print("LOSS", update(torch.dropout(x, 0.5, True)).item())
        print("STATE", torch.get_rng_state().sum().item(), net.weight.tolist())
        """

    plain, full = watched(script, probe=False), watched(script, attempt="second")

    assert full.output == plain.output
    assert full.samples == full.ids


def test_shifting_the_data_drops_one_batch_of_the_training_loader(watched):
    script = """
        torch.manual_seed(1)
        for epoch in range(2):
            for x, ids in DataLoader(data(), 4, shuffle=True):
                seen(ids)
                update(x)
        """

    plain, shifted = watched(script), watched(script, attempt="second", sabotage="data")

    assert shifted.events("sabotaged")
    assert len(shifted.ids) == len(plain.ids) - 1
    assert shifted.samples == shifted.ids
    assert [ids for ids in shifted.ids if ids in plain.ids] == shifted.ids


# -- averages ----------------------------------------------------------------------------------------------------


def test_averages_of_every_common_kind_are_found_with_their_counters(watched):
    run = watched(
        """
        import copy

        class Shadow:
            def __init__(self, model):
                self.shadow = {name: p.detach().clone() for name, p in model.named_parameters()}
                self.num_updates = 0

            def update(self, model):
                self.num_updates += 1
                for name, p in model.named_parameters():
                    self.shadow[name].lerp_(p.detach(), 0.1)

        class Copy:
            def __init__(self, model):
                self.ema, self.updates = copy.deepcopy(model).eval(), 3

        class Parameters:
            def __init__(self, parameters):
                self.shadow_params = [p.detach().clone() for p in parameters]
                self.optimization_step = 4

        def main():
            ema, copied, parameters = Shadow(net), Copy(net), Parameters(net.parameters())
            teacher, averaged = copy.deepcopy(net), torch.optim.swa_utils.AveragedModel(net)
            ema_list = [p.detach().clone() for p in net.parameters()]
            mine, state = list(net.parameters()), net.state_dict()
            for step in range(6):
                update(torch.ones(2, 3))
                gradients = [p.grad.clone() for p in net.parameters()]
                ema.update(net)
                averaged.update_parameters(net)
                if step == 2:
                    late = torch.optim.swa_utils.AveragedModel(net)

        main()
        """
    )

    first, last = run.trace.steps[0].before.averages, run.trace.steps[-1].before.averages
    expected = {
        "ema.shadow (Shadow)": 0,
        "copied.ema (Linear)": 3,
        "parameters.shadow_params (Parameters)": 4,
        "teacher (Linear)": None,
        "averaged (AveragedModel)": 0,
        "ema_list (list)": None,
    }
    assert {average.name: average.updates for average in first} == expected
    expected |= {"ema.shadow (Shadow)": 5, "averaged (AveragedModel)": 5, "late (AveragedModel)": 0}
    assert {average.name: average.updates for average in last} == expected

    contents = {average.name: average.content.digest for average in last}
    moved = {average.name for average in first if contents[average.name] != average.content.digest}
    assert moved == {"ema.shadow (Shadow)", "averaged (AveragedModel)"}


def test_a_script_without_averages_has_none(watched):
    run = watched(
        """
        models = {"net": net, "other": torch.nn.Linear(4, 2)}
        for step in range(4):
            best = {name: p.clone() for name, p in net.state_dict().items()}
            gradients = [p.clone() for p in net.parameters()]
            update(torch.ones(2, 3))
        """
    )

    assert [step.before.averages for step in run.trace.steps] == [[], [], [], []]


# -- what the loop reaches ---------------------------------------------------------------------------------------


def test_generators_of_data_sets_samplers_and_loops_are_found(watched):
    run = watched(
        """
        import numpy as np, random

        class Noisy(Dataset):
            def __init__(self):
                self.rng = np.random.default_rng(1)
            def __len__(self):
                return 8
            def __getitem__(self, index):
                return torch.tensor(self.rng.random(3)).float()

        def main():
            own, unused = torch.Generator().manual_seed(3), random.Random(5)
            loader = DataLoader(Noisy(), 2, shuffle=True, generator=torch.Generator().manual_seed(1))
            secret_text, step, started = "Ada Lovelace", 0, __import__("time").time()
            for x in loader:
                update(x + torch.rand(3, generator=own))
                step += 1

        main()
        """
    )

    found = [step.generators for step in run.trace.steps]
    assert set(found[0]) == {"own", "unused", "loader.dataset.rng", "loader.generator"}
    changing = {name for name in found[0] if found[1][name] != found[0][name]}
    assert changing == {"own", "loader.dataset.rng"}
    assert [step.values["step"] for step in run.trace.steps] == [0, 1, 2, 3]
    assert "started" not in run.trace.steps[0].values
    assert "Lovelace" not in str(run.trace)


def test_looking_does_not_keep_the_steps_tensors_alive(watched):
    run = watched(
        """
        import gc, weakref

        def main():
            gone = []
            for step in range(6):
                x = torch.ones(2, 3)
                loss = update(x)
                gone.append(weakref.ref(loss))
                del loss, x
                print("ALIVE", sum(ref() is not None for ref in gone))

        gc.disable()
        main()
        """
    )

    alive = [line for line in run.output.splitlines() if line.startswith("ALIVE")]
    assert alive == ["ALIVE 0"] * 6


# -- frameworks --------------------------------------------------------------------------------------------------

TRAINER = """
import sys
import torch
from transformers import EarlyStoppingCallback, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, index):
        row = torch.full((8,), index)
        return {"input_ids": row, "labels": row.clone(), "attention_mask": torch.ones(8, dtype=torch.long)}

def collate(rows):
    batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return batch

torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2))
arguments = TrainingArguments(
    output_dir=sys.argv[1], per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=6, save_steps=2,
    eval_strategy="steps", eval_steps=2, report_to=[], metric_for_best_model="loss", load_best_model_at_end=True,
    dataloader_num_workers=1, disable_tqdm=True, use_cpu=True)
trainer = Trainer(model=model, args=arguments, train_dataset=Rows(), eval_dataset=Rows(), data_collator=collate,
                  callbacks=[EarlyStoppingCallback(early_stopping_patience=3)])
trainer.train(resume_from_checkpoint=sys.argv[2] if len(sys.argv) > 2 else None)
"""


def test_the_trainers_state_samples_files_and_reads_come_out(watched):
    pytest.importorskip("transformers")
    first = watched("", prelude=TRAINER)
    second = watched("", str(first.out / "checkpoint-4"), prelude=TRAINER, attempt="second")

    steps, resumed = first.trace.steps, second.trace.steps
    assert [step.values["trainer.state.global_step"] for step in steps] == [0, 1, 2, 3, 4, 5]
    patience = "trainer.callback_handler.callbacks[1].early_stopping_patience_counter"
    assert all(patience in step.values for step in steps)
    assert len(steps[-1].values) <= 300

    flat = [index for samples in first.samples[:8] for index in samples]
    assert sorted(flat) == list(range(32))
    assert [step.values["trainer.state.global_step"] for step in resumed] == [4, 5]
    assert second.samples == first.samples[8:]
    assert resumed[0].generators == steps[4].generators

    saved = [path for step in steps for path in step.durable]
    assert "checkpoint-4/model.safetensors" in saved
    assert "checkpoint-4/trainer_state.json" in saved
    read = {detail["path"] for detail in second.events("read")}
    wanted = ("model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json")
    assert read >= {f"checkpoint-4/{name}" for name in wanted}


LIGHTNING = """
import sys
import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer, self.seen, self.source = torch.nn.Linear(3, 1), 0, torch.Generator().manual_seed(3)
    def training_step(self, batch, number):
        self.seen += len(batch[0])
        print("IDS", batch[1].tolist())
        return self.layer(batch[0] + torch.rand(3, generator=self.source)).pow(2).mean()
    def validation_step(self, batch, number):
        self.log("value", self.layer(batch[0]).mean().abs())
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.0001)

numbers = torch.arange(24)
data = TensorDataset(numbers[:, None].float().repeat(1, 3), numbers)
trainer = lightning.Trainer(
    max_epochs=3, default_root_dir=sys.argv[1], logger=False, enable_progress_bar=False, accelerator="cpu",
    callbacks=[EarlyStopping("value", patience=5), ModelCheckpoint(monitor="value")])
trainer.fit(Model(), DataLoader(data, 4, shuffle=True), DataLoader(data, 8))
"""


def test_lightnings_counters_callbacks_and_samples_come_out(watched):
    pytest.importorskip("lightning")
    run = watched("", prelude=LIGHTNING)

    values = [step.values for step in run.trace.steps]
    assert run.samples == run.ids
    assert [step["trainer.fit_loop.epoch_progress.current.completed"] for step in values] == [0] * 6 + [
        1
    ] * 6 + [2] * 6
    assert values[7]["trainer.fit_loop.epoch_loop.batch_progress.current.completed"] == 1
    optimizer = (
        "trainer.fit_loop.epoch_loop.automatic_optimization.optim_progress.optimizer.step.total.completed"
    )
    assert [step[optimizer] for step in values] == list(range(18))
    assert all("trainer.callbacks[0].wait_count" in step for step in values)
    assert values[0]["trainer.callbacks[0].best_score"] != values[-1]["trainer.callbacks[0].best_score"]
    (seen,) = [name for name in values[0] if name.endswith(".seen")]
    assert [step[seen] for step in values] == [4 * number for number in range(18)]
    (source,) = run.trace.steps[0].generators
    assert source.endswith(".source")
    assert any(path.endswith(".ckpt") for step in run.trace.steps for path in step.durable)
