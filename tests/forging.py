"""Checkpoints forged byte by byte, so that these tests need neither torch nor any framework."""

import io
import json
import pickle
import struct
import zipfile
from pathlib import Path


class Name:
    """A name in a pickle that need not exist here."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __call__(self):
        raise AssertionError("a forged name was called")


class Made:
    """An object that unpickling would make by a call."""

    def __init__(self, maker, *arguments, state=None):
        self.maker, self.arguments, self.state = maker, arguments, state


class Tensor:
    """A tensor whose bytes lie outside the pickle."""

    def __init__(self, *shape, kind="FloatStorage"):
        self.shape, self.kind, self.key = shape, kind, ""

    @property
    def elements(self):
        product = 1
        for size in self.shape:
            product *= size
        return product


class Storage:
    def __init__(self, tensor):
        self.tensor = tensor


class ForgingPickler(pickle._Pickler):
    """Writes pickles as torch does, with names that need not be importable."""

    dispatch = pickle._Pickler.dispatch.copy()

    def __init__(self, file, protocol=2):
        super().__init__(file, protocol)
        self.tensors = []

    def save_name(self, name):
        self.write(f"c{name.module}\n{name.name}\n".encode())

    dispatch[Name] = save_name

    def reducer_override(self, value):
        if isinstance(value, Made):
            return (value.maker, value.arguments, value.state)
        if isinstance(value, Tensor):
            value.key = str(len(self.tensors))
            self.tensors.append(value)
            return (
                Name("torch._utils", "_rebuild_tensor_v2"),
                (Storage(value), 0, value.shape, (1,) * len(value.shape), False, {}),
            )
        return NotImplemented

    def persistent_id(self, value):
        if isinstance(value, Storage):
            tensor = value.tensor
            return ("storage", Name("torch", tensor.kind), tensor.key, "cpu", tensor.elements)
        return None


class Forge:
    """Writes files that look like those of torch and of the frameworks."""

    Name, Made, Tensor = Name, Made, Tensor

    def pickled(self, value, protocol=2):
        buffer = io.BytesIO()
        ForgingPickler(buffer, protocol).dump(value)
        return buffer.getvalue()

    def torch_file(self, path, value):
        """Write ``value`` as ``torch.save`` does."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        pickler = ForgingPickler(buffer)
        pickler.dump(value)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            archive.writestr("archive/data.pkl", buffer.getvalue())
            for tensor in pickler.tensors:
                archive.writestr(f"archive/data/{tensor.key}", b"\0" * 4 * tensor.elements)
            archive.writestr("archive/version", "3\n")
        return path

    def safetensors(self, path, *names, size=2):
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        header, end = {}, 0
        for name in names:
            header[name] = {"dtype": "F32", "shape": [size], "data_offsets": [end, end + 4 * size]}
            end += 4 * size
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * end)
        return path

    def weights(self):
        return {"layer.weight": Tensor(2, 2), "layer.bias": Tensor(2)}

    def optimizer(self):
        moments = {"exp_avg": Tensor(2, 2), "exp_avg_sq": Tensor(2, 2), "step": Tensor(1)}
        return {"state": {0: moments}, "param_groups": [{"lr": 0.1, "params": [0]}]}

    def schedule(self, step):
        return {"base_lrs": [0.1], "last_epoch": step, "_step_count": step + 1}

    def checkpoint(self, step, **more):
        """A value with everything that a careful script stores, and ``more``."""
        return {
            "model": self.weights(),
            "optimizer": self.optimizer(),
            "scheduler": self.schedule(step),
            "step": step,
            "rng_state": {"torch": Tensor(16, kind="ByteStorage"), "python": (3, (1, 2, 3), None)},
            "sampler": {"position": step * 4, "seed": 1},
            "config": {"width": 2},
        } | more

    def trainer_checkpoint(self, folder, step, *, arguments=None, callbacks=()):
        """Write an HF Trainer checkpoint; files come in the Trainer's own order."""
        folder = Path(folder)
        self.safetensors(folder / "model.safetensors", "layer.weight", "layer.bias")
        arguments = dict(arguments or {"fp16": False})
        made = Made(Name("transformers.training_args", "TrainingArguments"), state=arguments)
        self.torch_file(folder / "training_args.bin", made)
        self.torch_file(folder / "optimizer.pt", self.optimizer())
        self.torch_file(folder / "scheduler.pt", self.schedule(step))
        self.torch_file(folder / "rng_state.pth", {"python": (3, (1, 2), None), "cpu": Tensor(16)})
        stored = {name: {"args": {}} for name in ("TrainerControl", *callbacks)}
        state = {"global_step": step, "epoch": 0.5, "log_history": [], "stateful_callbacks": stored}
        (folder / "trainer_state.json").write_text(json.dumps(state))
        return folder
