"""What ``samestep bundle export`` writes, other programs read: the same bits under the names that they expect."""

from __future__ import annotations

import json
import sys

import pytest
import safetensors.torch
import torch
import torch.distributed.checkpoint as dcp
from click.testing import CliRunner
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from forging import Forge
from samestep.bundle.errors import DamageError
from samestep.bundle.sealing import Statements, seal
from samestep.bundle.storage.opening import open_storage
from samestep.bundle.store import Store
from samestep.cli.main import cli
from samestep.errors import UsageError
from samestep.state import Capture, leaves, track
from samestep.state.exporting import export_dcp, export_file
from state_saving import first_attempt, save

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


class Tied(nn.Module):
    """Two layers with one weight, a frozen one that gets a file of its own, and a buffer."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 8)
        self.frozen = nn.Linear(520, 520)
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.table.weight

    def forward(self, tokens):
        return self.head(self.norm(self.table(tokens)))


def trained(seed, steps=2):
    torch.manual_seed(seed)
    net = Tied()
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    for _ in range(steps):
        optimizer.zero_grad()
        net(torch.randint(50, (6,))).square().sum().backward()
        optimizer.step()
        schedule.step()
    return net, optimizer, schedule


@pytest.fixture
def training():
    return trained(seed=1)


@pytest.fixture
def root(tmp_path, training):
    """The root of a run with a bundle of a model, its optimizer and its schedule."""
    net, optimizer, schedule = training
    tracked = [
        track("model", net),
        track("optimizer", optimizer, models={"model": net}),
        track("s", schedule),
    ]
    save(first_attempt(tmp_path / "run"), Capture(tracked).take())
    return tmp_path / "run"


def export(root, into, layout):
    words = ["bundle", "export", str(root), "--into", str(into), "--format", layout]
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    if done.exception is not None:
        raise done.exception
    return into


def unlike(file, expected):
    """Return how the tensors of a file differ from those expected, whatever their order."""
    found = safetensors.torch.load_file(file)
    return leaves.differences(dict(sorted(found.items())), dict(sorted(expected.items())))


def test_torch_loads_an_exported_checkpoint_into_a_fresh_model_and_optimizer(tmp_path, root, training):
    folder = export(root, tmp_path / "out", "dcp")
    net, optimizer, _ = trained(seed=2, steps=1)
    weights, states = get_state_dict(net, optimizer)
    state = {"model": weights, "optimizer": states}
    dcp.load(state, checkpoint_id=folder, no_dist=True)
    set_state_dict(net, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    assert leaves.differences(net.state_dict(), training[0].state_dict()) == []
    assert leaves.differences(optimizer.state_dict(), training[1].state_dict()) == []


def test_one_file_holds_every_shard_and_tied_weights_once(tmp_path, root, training):
    file = export(root, tmp_path / "out", "safetensors") / "model.safetensors"
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    names = set(safetensors.torch.load_file(file))
    assert names == training[0].state_dict().keys() - {"head.weight"}
    again = Tied()
    safetensors.torch.load_model(again, file)
    assert leaves.differences(again.state_dict(), training[0].state_dict()) == []


def test_the_files_of_whole_weights_come_as_they_are_and_nothing_else(tmp_path, root):
    names = {path.name for path in export(root, tmp_path / "out", "hf").iterdir()}
    files = {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}
    assert names == files | {"model.safetensors.index.json"}


@pytest.mark.parametrize("layout", ["hf", "safetensors", "dcp"])
def test_damaged_weights_are_not_exported_and_nothing_is_left_behind(tmp_path, root, layout):
    (file,) = root.glob("bundles/*/model-00001-of-00002.safetensors")
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(DamageError, match=r"model-00001-of-00002\.safetensors"):
        export(root, tmp_path / "out", layout)
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


@pytest.mark.parametrize("layout", ["safetensors", "dcp"])
def test_without_torch_it_is_said_what_is_missing(tmp_path, root, monkeypatch, layout):
    for name in [name for name in sys.modules if name.startswith("samestep.state")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=f"export --format {layout} needs torch") as raised:
        export(root, tmp_path / "out", layout)
    assert "samestep[train]" in raised.value.hint


def test_two_models_in_one_file_are_told_apart_by_their_names_and_places_need_not_be_folders(tmp_path):
    nets = {"generator": nn.Linear(3, 4), "critic": nn.Linear(4, 1)}
    store = Store.create(open_storage("memory:"))
    capture = Capture([track(name, net) for name, net in nets.items()])
    bundle = save(store.register(store.select(), "test"), capture.take())
    folder = export_file(store, bundle, tmp_path / "one")
    expected = {
        f"{name}.{key}": value for name, net in nets.items() for key, value in net.state_dict().items()
    }
    assert unlike(folder / "model.safetensors", expected) == []
    state = {name: {key: torch.zeros_like(value) for key, value in net.state_dict().items()}
             for name, net in nets.items()}  # fmt: skip
    dcp.load(state, checkpoint_id=export_dcp(store, bundle, tmp_path / "two"), no_dist=True)
    assert leaves.differences(state, {name: dict(net.state_dict()) for name, net in nets.items()}) == []


@pytest.fixture
def sealed(tmp_path):
    """Seals a checkpoint of transformers with the given weights in two shards, and returns store and bundle."""

    def made(weights):
        folder = Forge().trainer_checkpoint(tmp_path / "out" / "checkpoint-7", 7)
        (folder / "model.safetensors").unlink()
        names = {name: f"model-0000{at % 2 + 1}-of-00002.safetensors" for at, name in enumerate(weights)}
        for file in set(names.values()):
            own = {name: tensor for name, tensor in weights.items() if names[name] == file}
            safetensors.torch.save_file(own, folder / file, metadata={"format": "pt"})
        index = {"metadata": {}, "weight_map": names}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        store = Store.create(open_storage(tmp_path / "sealed"))
        return store, seal(store.register(store.select(), "test"), folder)

    return made


def test_shards_that_a_framework_wrote_are_joined(tmp_path, sealed):
    weights = {
        "a": torch.randn(3, 5),
        "b": torch.randn(7).to(torch.bfloat16),
        "c": torch.tensor(2.5, dtype=torch.float64),
        "d": torch.arange(3).to(torch.uint8),
        "e": torch.empty(0, 4),
    }
    store, bundle = sealed(weights)
    folder = export_file(store, bundle, tmp_path / "one")
    assert unlike(folder / "model.safetensors", weights) == []
    state = {"model": {name: torch.zeros_like(tensor) for name, tensor in weights.items()}}
    dcp.load(state, checkpoint_id=export_dcp(store, bundle, tmp_path / "two"), no_dist=True)
    assert leaves.differences(state["model"], weights) == []


def test_weights_that_only_their_framework_opens_are_refused_by_name(tmp_path):
    forge = Forge()
    forge.torch_file(tmp_path / "ckpt.pt", forge.checkpoint(8))
    store = Store.create(open_storage(tmp_path / "sealed"))
    statements = Statements(rebuilt={"data-order": "from the seed"}, allow_open=True)
    bundle = seal(store.register(store.select(), "test"), tmp_path / "ckpt.pt", statements)
    with pytest.raises(UsageError, match=r"ckpt\.pt, which only its framework opens"):
        export_file(store, bundle, tmp_path / "one")
    assert not (tmp_path / "one").exists()
