"""Which files make up one checkpoint of a disk state."""

import json
import struct

from samestep.checkpoints import find_units, inspect_unit
from samestep.drill.observe import Burst
from samestep.drill.units import resume_points, units_with_steps


def tensors(path, *names):
    """Write a safetensors file with one float each."""
    entries = {
        name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * n, 4 * n + 4]}
        for n, name in enumerate(names)
    }
    head = json.dumps(entries).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(head)) + head + bytes(4 * len(names)))


def held(folder, *bursts):
    return {
        unit.path: (step, unit.files)
        for unit, step in units_with_steps(folder, [Burst(*burst) for burst in bursts])
    }


def test_each_checkpoint_has_the_step_it_was_last_written_at(tmp_path):
    for step in (4, 8):
        tensors(tmp_path / f"step-{step}.safetensors", "layer.weight", "layer.bias")
    found = held(tmp_path, (4, ("step-4.safetensors",)), (8, ("step-8.safetensors",)))
    assert {path: step for path, (step, _) in found.items()} == {
        "step-4.safetensors": 4,
        "step-8.safetensors": 8,
    }


def test_an_optimizer_beside_the_weights_of_its_step_is_part_of_their_checkpoint(tmp_path):
    import torch

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    (tmp_path / "optimizer").mkdir()
    bursts = []
    for step in (4, 8):
        names = (f"ckpt-{step}.pt", f"optimizer/ckpt-{step}.pt")
        torch.save({"step": step, "model": model.state_dict()}, tmp_path / names[0])
        torch.save({"step": step, "optimizer": optimizer.state_dict()}, tmp_path / names[1])
        bursts.append((step, names))
    assert held(tmp_path, *bursts) == {names[0]: (step, names) for step, names in bursts}


def test_each_checkpoint_is_inspected_once(tmp_path, monkeypatch):
    for step in (4, 8):
        tensors(tmp_path / f"step-{step}.safetensors", "layer.weight")
    inspected = []

    def inspect(folder, unit):
        inspected.append(unit.path)
        return inspect_unit(folder, unit)

    monkeypatch.setattr("samestep.drill.units.inspect_unit", inspect)
    held(tmp_path, (4, ("step-4.safetensors",)), (8, ("step-8.safetensors",)))
    assert sorted(inspected) == ["step-4.safetensors", "step-8.safetensors"]


def test_two_whole_checkpoints_of_one_step_stay_two(tmp_path):
    for name in ("last.safetensors", "step-8.safetensors"):
        tensors(tmp_path / name, "layer.weight")
    found = held(tmp_path, (8, ("last.safetensors", "step-8.safetensors")))
    assert len(found) == 2


def test_weights_put_aside_are_no_resume_point_where_whole_checkpoints_lie_beside_them(tmp_path):
    import torch

    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    torch.save({"step": 2, "model": model.state_dict()}, tmp_path / "best.pt")
    assert [unit.path for unit in resume_points(tmp_path, find_units(tmp_path))] == ["best.pt"]
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "step-4.pt")
    assert [unit.path for unit in resume_points(tmp_path, find_units(tmp_path))] == ["step-4.pt"]
