"""Which names a pickle may refer to without being able to run anything but data reconstruction."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .values import Global


class Trust(enum.Enum):
    """How far a name in a pickle can be trusted."""

    DATA = "data"  #: rebuilds tensors, arrays or containers
    FOREIGN = "foreign"  #: runs the code of a package when unpickled
    DANGEROUS = "dangerous"  #: can run commands, read files or reach the network


_DATA_NAMES = frozenset(
    {
        "_codecs.encode",
        "argparse.Namespace",
        "collections.Counter",
        "collections.OrderedDict",
        "collections.defaultdict",
        "collections.deque",
        "copy_reg._reconstructor",
        "copyreg._reconstructor",
        "datetime.date",
        "datetime.datetime",
        "datetime.timedelta",
        "decimal.Decimal",
        "io.BytesIO",
        "numpy._core.multiarray._reconstruct",
        "numpy._core.multiarray.scalar",
        "numpy._core.numeric._frombuffer",
        "numpy.core.multiarray._reconstruct",
        "numpy.core.multiarray.scalar",
        "numpy.core.numeric._frombuffer",
        "numpy.dtype",
        "numpy.ndarray",
        "numpy.random._pickle.__bit_generator_ctor",
        "numpy.random._pickle.__generator_ctor",
        "numpy.random._pickle.__randomstate_ctor",
        "pathlib.Path",
        "pathlib.PosixPath",
        "pathlib.PurePosixPath",
        "pathlib.WindowsPath",
        "pathlib._local.Path",
        "pathlib._local.PosixPath",
        "torch.Size",
        "torch.Tensor",
        "torch._tensor._rebuild_from_type_v2",
        "torch.device",
        "torch.nn.parameter.Parameter",
        "torch.nn.parameter.Buffer",
        "torch.serialization._get_layout",
        "torch.storage.TypedStorage",
        "torch.storage.UntypedStorage",
        "torch.storage._load_from_bytes",  # what it opens is read as well
        "torch.torch_version.TorchVersion",
        "types.SimpleNamespace",
        "uuid.UUID",
        "torch.distributed.checkpoint.filesystem._StorageInfo",
        "torch.distributed.checkpoint.filesystem._StoragePrefix",
        "torch.distributed.checkpoint.planner.SavePlan",
    }
)

_DATA_PREFIXES = (
    "numpy.dtypes.",
    "torch._utils._rebuild_",
    "torch.distributed.checkpoint.metadata.",
)

_DATA_BUILTINS = frozenset({
    "bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object",
    "range", "set", "slice", "str", "tuple",
})  # fmt: skip

_DATA_TORCH = frozenset({
    "bfloat16", "bool", "cfloat", "cdouble", "complex32", "complex64", "complex128", "double", "float",
    "float16", "float32", "float64", "half", "int", "int8", "int16", "int32", "int64", "long", "qint8",
    "qint32", "quint8", "short", "uint8", "uint16", "uint32", "uint64", "per_tensor_affine",
    "per_channel_affine", "strided", "contiguous_format", "preserve_format", "channels_last",
})  # fmt: skip

_DANGEROUS_MODULES = frozenset({
    "_io", "_posixsubprocess", "_pickle", "_socket", "_thread", "aiohttp", "asyncio", "bdb", "cffi",
    "code", "codeop", "commands", "concurrent", "ctypes", "dill", "cloudpickle", "distutils",
    "doctest", "fcntl", "ftplib", "gc", "http", "httplib", "imp", "importlib", "inspect", "io",
    "joblib", "linecache", "marshal", "multiprocessing", "nt", "operator", "os", "pdb", "pickle",
    "pip", "pkgutil", "platform", "posix", "posixpath", "profile", "cProfile", "pty", "pydoc",
    "requests", "runpy", "select", "setuptools", "shelve", "shutil", "signal", "site", "smtplib",
    "socket", "socketserver", "ssl", "subprocess", "sys", "tempfile", "test", "threading", "timeit",
    "trace", "types", "urllib", "urllib2", "uuid", "venv", "webbrowser", "xmlrpc", "zipfile",
    "zipimport",
})  # fmt: skip

_DANGEROUS_PREFIXES = (
    "numpy.testing.",
    "numpy.f2py.",
    "numpy.distutils.",
    "numpy.load",
    "pandas.",
    "torch.hub.",
    "torch.load",
    "torch.jit.",
    "torch.serialization.load",
    "torch.utils.cpp_extension.",
    "torch.utils._config_module.",
    "torch._dynamo.",
    "torch._inductor.",
    "torch.ops.",
    "torch.distributed.rpc.",
    "torch.multiprocessing.",
)


def trust(name: Global) -> Trust:
    """Say how far the name can be trusted; what is not known is foreign, never data."""
    full = str(name)
    if name.module in ("builtins", "__builtin__"):
        return Trust.DATA if name.name in _DATA_BUILTINS else Trust.DANGEROUS
    if full in _DATA_NAMES or _is_torch_data(name):
        return Trust.DATA
    if full.startswith(_DATA_PREFIXES) and "." not in name.name:
        return Trust.DATA
    if name.module.split(".")[0] in _DANGEROUS_MODULES or full.startswith(_DANGEROUS_PREFIXES):
        return Trust.DANGEROUS
    return Trust.FOREIGN


def _is_torch_data(name: Global) -> bool:
    if name.module not in ("torch", "torch.cuda") or "." in name.name:
        return False
    return name.name in _DATA_TORCH or name.name.endswith("Storage")
