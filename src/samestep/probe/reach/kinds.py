"""What a reachable thing is to the probe: a plain value, a random generator, an iterator, a container, or nothing."""

from __future__ import annotations

import enum
import hashlib
import re
import sys
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

LONGEST_TEXT = 40
_BIGGEST_COUNT = 1 << 44  # above lie addresses, nanosecond clocks and 64-bit ids
_PRIVATE = re.compile(
    r"(?:^|[._\[])(?:\w*_)?(?:time|times|clock|timestamp|elapsed|duration|runtime|pid|ppid|port|uuid|address|host\w*"
    r"|user\w*|token|key|secret|passw\w*|environ|seconds|started|began|samples_per_second|steps_per_second)\]?$",
    re.IGNORECASE,
)
_COUNTING = re.compile(
    r"step|epoch|count|patience|wait|best|iter|progress|completed|processed|ready|seen|position|index|idx|batch|num_"
    r"|total|updates|metric|score|loss",
    re.IGNORECASE,
)
_SMALLEST_CLOCK = 1 << 30
_CLOCK_WINDOW_SECONDS = 30 * 86400.0
_HOUR_SECONDS = 3600.0

_CONTAINERS = (dict, list, tuple, deque, SimpleNamespace)
_STDLIB_WALKED = frozenset({"collections", "types", "argparse", "itertools", "__main__"})
_SKIPPED_MODULES = frozenset(
    {"numpy", "tokenizers", "datasets", "pyarrow", "pandas", "wandb", "tensorboard", "tqdm", "rich", "PIL"}
    | {
        "matplotlib",
        "pydantic",
        "fsspec",
        "jinja2",
        "safetensors",
        "huggingface_hub",
        "samestep",
        "_samestep",
        "regex",
    }
)
_TORCH_WALKED = ("torch.utils.data", "torch.nn.modules", "torch.nn.parallel", "torch._dynamo.eval_frame")
_FRAMEWORKS = frozenset(
    {
        "torch",
        "torchdata",
        "transformers",
        "accelerate",
        "lightning",
        "pytorch_lightning",
        "lightning_fabric",
        "peft",
    }
)
_SKIPPED_TYPES = re.compile(r"(?:Tokenizer\w*|Processor|Logger|ProgressBar|Writer|Config)$")


class Kind(enum.Enum):
    """What to do with a thing."""

    PLAIN = enum.auto()
    RANDOM = enum.auto()
    ITERATOR = enum.auto()
    STATEFUL = enum.auto()
    CONTAINER = enum.auto()
    SKIPPED = enum.auto()


_KINDS: dict[type, Kind] = {}


def kind_of(thing: Any) -> Kind:
    """Tell what ``thing`` is, by its type alone (nothing of the thing runs)."""
    cls = type(thing)
    kind = _KINDS.get(cls)
    if kind is None:
        kind = _decide(cls)
        if len(_KINDS) < 5000:
            _KINDS[cls] = kind
    if kind is Kind.RANDOM and _is_global(thing):
        return Kind.SKIPPED
    return kind


def _decide(cls: type) -> Kind:
    package = str(cls.__module__).partition(".")[0]
    if _is_plain(cls):
        return Kind.PLAIN
    if _random_kind(cls):
        return Kind.RANDOM
    if issubclass(cls, _CONTAINERS):
        return Kind.CONTAINER
    if _is_skipped(cls, package):
        return Kind.SKIPPED
    iterates = _has(cls, "__next__")
    if iterates and package in {"builtins", "itertools"}:
        return Kind.ITERATOR
    own = package not in _FRAMEWORKS and (iterates or _keeps_state(cls))
    return Kind.STATEFUL if own else Kind.CONTAINER


def _is_plain(cls: type) -> bool:
    if issubclass(cls, enum.Enum):
        return False
    return issubclass(cls, (bool, int, float, str, *_numpy_scalars())) or cls is _tensor_type()


def _is_skipped(cls: type, package: str) -> bool:
    if issubclass(cls, (type, enum.Enum)) or package in _SKIPPED_MODULES:
        return True
    if _SKIPPED_TYPES.search(cls.__name__):
        return True
    if package in {"torch", "torchdata"} and _has(cls, "__next__"):
        return True  # the iterators of loaders are followed batch by batch
    if package == "torch":
        return not cls.__module__.startswith(_TORCH_WALKED)
    if package == "builtins":
        return not _has(cls, "__next__")
    return package in sys.stdlib_module_names and package not in _STDLIB_WALKED


def _has(cls: type, name: str) -> bool:
    return any(name in base.__dict__ for base in cls.__mro__)


def _keeps_state(cls: type) -> bool:
    """Return whether these are objects of the script itself with a state of their own to save."""
    torch = sys.modules.get("torch")
    known = (torch.nn.Module, torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler) if torch else ()
    return not issubclass(cls, known) and _has(cls, "state_dict") and _has(cls, "load_state_dict")


# -- plain values ------------------------------------------------------------------------------------------------


def is_private(name: str) -> bool:
    """Return whether a path ends in the name of a clock, a machine, a person or a secret."""
    return bool(_PRIVATE.search(name))


def lacks_counting_name(name: str, thing: Any) -> int:
    """Rank plain values for when there are too many: 0 named like a counter, 1 other numbers, 2 flags and texts."""
    if isinstance(thing, (bool, str)):
        return 2
    return 0 if _COUNTING.search(name.rpartition(".")[2]) else 1


def plain_value(thing: Any) -> Any:
    """Return the number, or the digest of the text; None for what is a clock, an address or an id."""
    if isinstance(thing, bool):
        return bool(thing)
    if isinstance(thing, int):
        fits = -_SMALLEST_CLOCK < thing < _BIGGEST_COUNT
        return int(thing) if fits and (thing < _SMALLEST_CLOCK or not _is_clock(float(thing))) else None
    if isinstance(thing, float):
        return None if thing > 1 and _is_clock(float(thing)) else float(thing)
    if isinstance(thing, str):
        return _text_digest(thing) if 0 < len(thing) <= LONGEST_TEXT else None
    return _numpy_value(thing) if isinstance(thing, _numpy_scalars()) else _scalar_digest(thing)


def _scalar_digest(thing: Any) -> str | None:
    """Return a digest of a tensor that holds one number (a best metric); no tensor's content leaves the process."""
    if not _is_tensor(thing) or thing.dim() or thing.requires_grad or thing.is_meta:
        return None
    return "scalar:" + _digest(repr(thing.item()).encode())


def _is_tensor(thing: Any) -> bool:
    return type(thing) is _tensor_type()


def _tensor_type() -> type | None:
    return getattr(sys.modules.get("torch"), "Tensor", None)


def _text_digest(text: str) -> str:
    return "text:" + hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:8]


def _is_clock(value: float) -> bool:
    if abs(value - time.time()) < _CLOCK_WINDOW_SECONDS:
        return True
    # A counter may happen to lie near the machine's uptime; only a clock has a fraction there too.
    return not value.is_integer() and 0 <= time.monotonic() - value < min(_HOUR_SECONDS, value)


def _numpy_scalars() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy")
    return (numpy.bool_, numpy.integer, numpy.floating) if numpy else ()


def _numpy_value(thing: Any) -> Any:
    value = thing.item()
    return value if isinstance(value, (bool, int, float)) else None


# -- random generators -------------------------------------------------------------------------------------------


def _random_kind(cls: type) -> str:
    """Return which library's generator this is, "" for none."""
    random, torch, numpy = sys.modules.get("random"), sys.modules.get("torch"), sys.modules.get("numpy")
    if random and issubclass(cls, random.Random) and not issubclass(cls, random.SystemRandom):
        return "python"
    if torch and issubclass(cls, torch.Generator):
        return "torch"
    source = getattr(numpy, "random", None)
    if source and issubclass(cls, (source.Generator, source.RandomState, source.BitGenerator)):
        return "numpy"
    return ""


def _is_global(thing: Any) -> bool:
    random, torch = sys.modules.get("random"), sys.modules.get("torch")
    if thing is getattr(random, "_inst", None) or thing is getattr(torch, "default_generator", None):
        return True
    cuda = sys.modules.get("torch.cuda")
    if any(thing is known for known in getattr(cuda, "default_generators", ())):
        return True
    legacy = sys.modules.get("numpy.random.mtrand")
    return thing is getattr(legacy, "_rand", None)


def random_digest(generator: Any) -> str:
    """Return a digest of a random generator's state; reading it draws nothing."""
    which = _random_kind(type(generator))
    if which == "python":
        return _digest(repr(generator.getstate()).encode())
    if which == "torch":
        return _digest(bytes(generator.get_state().numpy()))
    return _digest(_numpy_state(generator))


def _numpy_state(generator: Any) -> bytes:
    if hasattr(generator, "get_state"):
        return _canonical(generator.get_state(legacy=False))
    bits = getattr(generator, "bit_generator", generator)
    return _canonical(bits.state)


def _canonical(state: Any) -> bytes:
    if isinstance(state, dict):
        return b"".join(str(name).encode() + b"=" + _canonical(state[name]) + b";" for name in sorted(state))
    if hasattr(state, "tobytes"):
        return bytes(state.tobytes())
    return repr(state).encode()


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()
