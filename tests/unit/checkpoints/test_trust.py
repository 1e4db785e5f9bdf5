"""Which names in pickles are data, which run a package, and which are dangerous."""

import pytest

from samestep.checkpoints.trust import Trust, trust
from samestep.checkpoints.values import Global


@pytest.mark.parametrize(
    "name",
    [
        "torch._utils _rebuild_tensor_v2", "torch FloatStorage", "torch bfloat16", "collections OrderedDict",
        "numpy._core.multiarray _reconstruct", "numpy dtype", "builtins set", "pathlib PosixPath",
        "torch.distributed.checkpoint.metadata TensorStorageMetadata",
    ],
)  # fmt: skip
def test_what_rebuilds_tensors_and_containers_is_data(name):
    assert trust(Global(*name.split())) is Trust.DATA


@pytest.mark.parametrize(
    "name",
    [
        "os system", "posix system", "nt system", "subprocess Popen", "builtins eval", "builtins getattr",
        "builtins __import__", "__builtin__ exec", "importlib import_module", "runpy run_path", "torch.hub load",
        "torch load", "operator attrgetter", "webbrowser open", "numpy.testing._private.utils runstring",
        "torch.serialization load", "socket socket", "code interact", "types FunctionType", "io open",
    ],
)  # fmt: skip
def test_what_can_run_commands_is_dangerous(name):
    assert trust(Global(*name.split())) is Trust.DANGEROUS


@pytest.mark.parametrize(
    "name",
    [
        "ultralytics.nn.tasks DetectionModel", "__main__ Net", "transformers.training_args TrainingArguments",
        "torch.nn.modules.linear Linear", "numpy.core.multiarray fromfile", "torch._utils get_device_index",
        "collections OrderedDict.fromkeys", "torch._utils _rebuild_tensor_v2.__globals__", "osx thing",
    ],
)  # fmt: skip
def test_everything_else_runs_the_code_of_a_package(name):
    assert trust(Global(*name.split())) is Trust.FOREIGN
