"""Drill training scripts that other projects wrote, unmodified.

Each case takes a script out of an installed package or of a public repository found under ``--sources``, writes tiny
inputs beside it, and runs ``samestep drill`` there. Nothing of the scripts is kept in this repository; the verdicts
that were worked out by hand before the first drill are in ``docs/zoo.md``.

    python scripts/third_party.py --sources ~/src                 # every case whose script is found
    python scripts/third_party.py --only litgpt --work /tmp/third

The interpreter that runs this file also runs the scripts: install what they need there (the ``needs`` of each case).
``samestep`` may live in another environment; it has to be on the PATH.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import pickle
import random
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokenizers import Tokenizer

WORDS = (
    *("the", "a", "small", "large", "model", "step", "run", "state", "save", "disk"),
    *("train", "loss", "again", "same", "other", "over", "never", "always", "point"),
)


@dataclass(frozen=True)
class Case:
    """One third-party script and how to drill it.

    Attributes:
        name: the case's name, also its folder's name.
        source: folder name of the repository that holds the script, or ``None`` when a package ships it.
        needs: modules that the script imports besides torch.
        prepare: writes the project folder; takes the folder and the source folder.
        command: the training command, with ``{out}``.
        options: further options of ``samestep drill``.
    """

    name: str
    source: str | None
    needs: tuple[str, ...]
    prepare: Callable[[Path, Path], None]
    command: str
    options: tuple[str, ...] = ()


def copy_files(source: Path, project: Path, *names: str) -> None:
    """Copy files out of a snapshot, each to the top of the project folder."""
    for name in names:
        shutil.copy(source / name, project / Path(name).name)


def sentences(count: int, seed: int = 0) -> list[str]:
    """Made-up sentences of twelve words from a small vocabulary."""
    draw = random.Random(seed)  # noqa: S311 - made-up text, no secret
    return [" ".join(draw.choices(WORDS, k=12)) for _ in range(count)]


def write_lines(path: Path, rows: Sequence[object]) -> None:
    """Write one JSON document a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def word_tokenizer(special: Sequence[str]) -> Tokenizer:
    """A word-level tokenizer over the made-up vocabulary."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {token: index for index, token in enumerate([*special, *sorted(set(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer


def prepare_nanogpt(project: Path, source: Path) -> None:
    """Token files of random numbers, in the layout that its data scripts write."""
    import numpy as np

    copy_files(source, project, "train.py", "model.py", "configurator.py")
    data = project / "data" / "tiny"
    data.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for split in ("train", "val"):
        draw.integers(0, 64, 4000, dtype=np.uint16).tofile(data / f"{split}.bin")
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 64}))


def prepare_makemore(project: Path, source: Path) -> None:
    """The script and the list of names that stands beside it."""
    copy_files(source, project, "makemore.py", "names.txt")


def prepare_sft(project: Path, _source: Path) -> None:
    """A two-layer Llama, its tokenizer, and a text data set."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    torch.manual_seed(0)
    special = ("<unk>", "<s>", "</s>", "<pad>")
    names = dict(zip(("unk_token", "bos_token", "eos_token", "pad_token"), special, strict=True))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=word_tokenizer(special), **names)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=3,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(project / "model")
    tokenizer.save_pretrained(project / "model")
    write_lines(project / "data" / "train.jsonl", [{"text": text} for text in sentences(24)])


GLUE_CARD = """---
configs:
- config_name: mrpc
  data_files:
  - {split: train, path: train.jsonl}
  - {split: validation, path: validation.jsonl}
---
"""
GLUE_METRIC = '''"""Accuracy under the name that the script asks for."""
import datasets
import evaluate


class Glue(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        return {"accuracy": sum(a == b for a, b in zip(predictions, references)) / len(references)}
'''


def prepare_accelerate(project: Path, source: Path) -> None:
    """The names that the script asks the hub for, as folders of the project: model, data set and metric."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(0)
    copy_files(source, project, "examples/by_feature/checkpointing.py")
    model = project / "bert-base-cased"
    model.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(WORDS))]
    (model / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(str(model / "vocab.txt")).save_pretrained(model)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=64,
    )  # fmt: skip
    BertForSequenceClassification(config).save_pretrained(model)
    glue = project / "nyu-mll" / "glue"
    for split, count in (("train", 160), ("validation", 32)):
        texts = sentences(2 * count, seed=count)
        pairs = zip(texts[::2], texts[1::2], strict=True)
        rows = [{"sentence1": a, "sentence2": b, "label": i % 2, "idx": i} for i, (a, b) in enumerate(pairs)]
        write_lines(glue / f"{split}.jsonl", rows)
    (glue / "README.md").write_text(GLUE_CARD)
    (project / "glue").mkdir()
    (project / "glue" / "glue.py").write_text(GLUE_METRIC)


def prepare_litgpt(project: Path, _source: Path) -> None:
    """A base checkpoint in litgpt's layout and instructions to fine-tune on."""
    import torch
    from litgpt import GPT, Config
    from litgpt.utils import save_config

    base = project / "checkpoints" / "tiny"
    base.mkdir(parents=True)
    tokenizer = word_tokenizer(("<unk>", "<s>", "</s>"))
    tokenizer.save(str(base / "tokenizer.json"))
    names = {"tokenizer_class": "GPTNeoXTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    (base / "tokenizer_config.json").write_text(json.dumps(names))
    config = Config(
        name="tiny", block_size=128, vocab_size=32, padded_vocab_size=32, n_layer=1, n_head=2, n_embd=16
    )
    save_config(config, base)
    torch.manual_seed(0)
    torch.save(GPT(config).state_dict(), base / "lit_model.pth")
    rows = [{"instruction": text, "output": " ".join(text.split()[:4])} for text in sentences(26)]
    (project / "data.json").write_text(json.dumps(rows))


CASES = (
    Case(
        "nanogpt",
        "nanoGPT",
        ("numpy",),
        prepare_nanogpt,
        (
            "python train.py --dataset=tiny --device=cpu --compile=False --dtype='float32' --eval_interval=5 "
            "--eval_iters=2 --max_iters=20 --warmup_iters=4 --lr_decay_iters=20 --n_layer=1 --n_head=2 --n_embd=16 "
            "--block_size=16 --batch_size=4 --gradient_accumulation_steps=2 --out_dir={out}"
        ),
        ("--resume-with", "--init_from=resume"),
    ),
    Case(
        "makemore",
        "makemore",
        ("tensorboard",),
        prepare_makemore,
        "python makemore.py --type bigram --num-workers 0 --max-steps 1101 --work-dir {out}",
        ("--resume-with", "--resume"),
    ),
    Case(
        "trl-sft",
        None,
        ("trl", "datasets"),
        prepare_sft,
        (
            "python -m trl.scripts.sft --model_name_or_path model --dataset_name data --output_dir {out} "
            "--max_steps 20 --save_steps 5 --logging_steps 1 --per_device_train_batch_size 2 --report_to none "
            "--use_cpu true --bf16 false"
        ),
        ("--resume-with", "--resume_from_checkpoint {checkpoint}"),
    ),
    Case(
        "accelerate",
        "accelerate",
        ("accelerate", "evaluate", "datasets", "transformers"),
        prepare_accelerate,
        "python checkpointing.py --cpu --checkpointing_steps 5 --output_dir {out}",
        ("--resume-with", "--resume_from_checkpoint {checkpoint}"),
    ),
    Case(
        "litgpt",
        None,
        ("litgpt", "jsonargparse"),
        prepare_litgpt,
        (
            "python -m litgpt finetune_full checkpoints/tiny --data JSON --data.json_path data.json "
            "--data.val_split_fraction 0.1 --data.num_workers 0 --out_dir {out} --resume auto --precision 32-true "
            "--train.save_interval 5 --train.max_steps 20 --train.lr_warmup_steps 4 --train.global_batch_size 2 "
            "--train.micro_batch_size 1 --eval.max_new_tokens 8"
        ),
    ),
)


def missing(case: Case, sources: Path | None) -> str:
    """Return why the case cannot run here; empty when it can."""
    absent = [module for module in case.needs if importlib.util.find_spec(module) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    if case.source and find_source(case.source, sources) is None:
        return f"no folder named {case.source} under --sources"
    return ""


def find_source(name: str, sources: Path | None) -> Path | None:
    """Return the snapshot's folder: ``name`` itself, or ``owner+name`` and the like."""
    folders = sorted(sources.iterdir()) if sources else []
    return next((path for path in folders if path.is_dir() and path.name.split("+")[-1] == name), None)


def make_project(case: Case, project: Path, sources: Path | None) -> None:
    """Build the project folder anew, but keep earlier results."""
    for path in project.iterdir() if project.exists() else ():
        if path.name != ".samestep":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    project.mkdir(parents=True, exist_ok=True)
    source = find_source(case.source, sources) if case.source else None
    case.prepare(project, source or project)


def drill(case: Case, project: Path, extra: Sequence[str]) -> int:
    """Run the drill in the project folder and return its exit code."""
    environment = os.environ | {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    }
    arguments = ["samestep", "drill", *case.options, *extra, "--", *shlex.split(case.command)]
    print("$", shlex.join(arguments), flush=True)
    return subprocess.run(arguments, cwd=project, env=environment, check=False).returncode


def verdict(project: Path) -> str:
    """One line about the newest result: the outcome of each family and the findings."""
    path = project / ".samestep" / "latest" / "drill.json"
    if not path.exists():
        return "no result"
    result = json.loads(path.read_text())
    families: dict[str, list[str]] = {}
    for scenario in result["scenarios"]:
        families.setdefault(scenario["family"], []).append(scenario["observed"]["outcome"])
    outcomes = "; ".join(f"{family}: {', '.join(sorted(set(seen)))}" for family, seen in families.items())
    slugs = {finding["slug"] for scenario in result["scenarios"] for finding in scenario["findings"]}
    return f"{result['outcome']} ({outcomes}) {' '.join(sorted(slugs))}"


def parse_arguments() -> argparse.Namespace:
    """Read the command line; what follows ``--`` goes to ``samestep drill``."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--sources", type=Path, metavar="DIR", help="folder with snapshots of the public repositories"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("third-party"), metavar="DIR", help="where the projects are built"
    )
    parser.add_argument("--only", nargs="*", choices=[case.name for case in CASES], help="only these cases")
    parser.add_argument("--prepare", action="store_true", help="build the projects, drill nothing")
    parser.add_argument("extra", nargs="*", metavar="-- OPTION", help="further options of samestep drill")
    return parser.parse_args()


def main() -> int:
    """Prepare and drill the cases; exit 1 when none could run."""
    arguments = parse_arguments()
    lines = []
    for case in CASES:
        if arguments.only and case.name not in arguments.only:
            continue
        project = (arguments.work / case.name).resolve()
        reason = missing(case, arguments.sources)
        if reason:
            print(f"{case.name}: skipped, {reason}", file=sys.stderr)
            continue
        make_project(case, project, arguments.sources)
        if not arguments.prepare:
            code = drill(case, project, arguments.extra)
            lines.append(f"{case.name}: exit {code}, {verdict(project)}")
        else:
            lines.append(f"{case.name}: prepared in {project}")
    print("\n".join(lines))
    return 0 if lines else 1


if __name__ == "__main__":
    sys.exit(main())
