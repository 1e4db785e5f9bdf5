"""What watching costs: the step time of a 100-million-parameter transformer on a CPU, with and without the probe.

Both sides train in one process and take turns step by step, so that a slow spell of the machine hits both. The side
that is not watched runs with the probe's hooks deaf.

Usage: python benchmarks/probe_overhead.py [--steps 8] [--tokens 512] [--without-xxhash]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from samestep.probe import environment
from samestep.trace import Orders, load_traces

TARGET_PERCENT = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=8, help="measured steps per side")
    parser.add_argument("--tokens", type=int, default=512, help="tokens per step")
    parser.add_argument(
        "--without-xxhash", action="store_true", help="measure the digest computed with torch"
    )
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    return _train(options) if options.inside else _measure(options)


def _measure(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        orders = Path(folder, "orders.json")
        Orders(attempt="overhead", trace_folder=folder).write(orders)
        command = [sys.executable, __file__, "--inside", *(a for a in sys.argv[1:] if a != "--inside")]
        done = subprocess.run(
            command, env=environment(orders, os.environ), stdout=subprocess.PIPE, check=True
        )
        times = json.loads(done.stdout.splitlines()[-1])
        (trace,) = load_traces(Path(folder))
    plain, watched = statistics.median(times["plain"]), statistics.median(times["watched"])
    inside = statistics.median(step.probe_seconds for step in trace.steps[-options.steps :])
    percent = 100 * (watched / plain - 1)
    print(f"parameters        {times['parameters'] / 1e6:.1f} M, digest {trace.header.digest}")
    print(f"step, plain       {plain:.3f} s (median of {options.steps}, min {min(times['plain']):.3f})")
    print(f"step, watched     {watched:.3f} s (median of {options.steps}, min {min(times['watched']):.3f})")
    print(f"inside the probe  {inside:.3f} s a step ({100 * inside / plain:.1f} %)")
    print(f"overhead          {percent:+.1f} % (target: at most {TARGET_PERCENT:.0f} %)")
    return 0 if min(percent, 100 * inside / plain) <= TARGET_PERCENT else 1


def _train(options: argparse.Namespace) -> int:
    if options.without_xxhash:
        sys.modules["xxhash"] = None  # type: ignore[assignment]
    import torch

    model = _model(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    session: Any = getattr(torch, "_samestep_session")  # noqa: B009
    times: dict[str, Any] = {
        "plain": [],
        "watched": [],
        "parameters": sum(p.numel() for p in model.parameters()),
    }
    for number in range(2 * options.steps + 4):
        watched = number % 2 == 1
        session.working = not watched  # deaf: the hooks return at once
        began = time.perf_counter()
        tokens = torch.randint(0, 8192, (options.tokens // 128, 129))
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        if watched:
            optimizer.step()
        else:
            _step_unwatched(optimizer)
        optimizer.zero_grad()
        if number >= 4:  # the first steps allocate, and search the heap for models
            times["watched" if watched else "plain"].append(time.perf_counter() - began)
    session.working = False
    print(json.dumps(times))
    return 0


def _step_unwatched(optimizer: Any) -> None:
    """Call the optimizer without its global hooks."""
    hooks = vars(sys.modules["torch.optim.optimizer"])
    kept = {
        name: dict(hooks[name]) for name in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")
    }
    for name in kept:
        hooks[name].clear()
    optimizer.step()
    for name, entries in kept.items():
        hooks[name].update(entries)


def _model(torch: Any) -> Any:
    width, layers, words = 768, 12, 8192
    layer = torch.nn.TransformerEncoderLayer(
        width, 12, 4 * width, dropout=0.1, batch_first=True, norm_first=True
    )
    encoder = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    return torch.nn.Sequential(torch.nn.Embedding(words, width), encoder, torch.nn.Linear(width, words))


if __name__ == "__main__":
    sys.exit(main())
