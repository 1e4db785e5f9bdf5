"""What to change in a known framework to save more often, and how it is told to resume.

Read from the sources of transformers 5.24, accelerate 1.15, lightning 2.6, torch 2.13, DeepSpeed,
ultralytics 8.4 and timm 1.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .bundles import SAMESTEP
from .model import UNKNOWN
from .recognise import ACCELERATE, DEEPSPEED, LIGHTNING, TIMM, TORCH_DCP, TRANSFORMERS, ULTRALYTICS
from .units import find_units

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Framework:
    """Facts about one framework that messages need.

    Attributes:
        name: as it is called in reports.
        title: as its users call it.
        save_setting: what to change so that it saves more often.
        resume_setting: what makes it resume.
        resume_flag: the command line flag that its example scripts use for that; empty if there is none.
        selection: how it chooses a checkpoint when it is only told to resume.
    """

    name: str
    title: str
    save_setting: str
    resume_setting: str
    resume_flag: str
    selection: str


FRAMEWORKS: dict[str, Framework] = {
    framework.name: framework
    for framework in (
        Framework(
            TRANSFORMERS,
            "HF Trainer",
            'save_strategy="steps" and save_steps=N in TrainingArguments (--save_steps N)',
            "trainer.train(resume_from_checkpoint=True)",
            "--resume_from_checkpoint",
            "the folder checkpoint-N with the highest number, whatever is in it",
        ),
        Framework(
            ACCELERATE,
            "Accelerate",
            "how often the script calls accelerator.save_state() (--checkpointing_steps N in examples)",
            "accelerator.load_state(folder), then skip_first_batches for the rest of the epoch",
            "--resume_from_checkpoint",
            "the folder with the highest number in its name, whatever is in it",
        ),
        Framework(
            LIGHTNING,
            "Lightning",
            "ModelCheckpoint(every_n_train_steps=N)",
            'trainer.fit(..., ckpt_path="last") together with ModelCheckpoint(save_last=True)',
            "--ckpt_path",
            'with ckpt_path="last": the newest file whose name begins with "last"; without it, none',
        ),
        Framework(
            TORCH_DCP,
            "torch.distributed.checkpoint",
            "how often the script calls torch.distributed.checkpoint.save",
            "torch.distributed.checkpoint.load(state, checkpoint_id=folder)",
            "",
            "the highest step-N folder that has a .metadata file (torchtitan; others choose themselves)",
        ),
        Framework(
            DEEPSPEED,
            "DeepSpeed",
            "how often the script calls engine.save_checkpoint(folder)",
            "engine.load_checkpoint(folder)",
            "",
            'the folder named in the text file "latest"; without that file none, and only a warning',
        ),
        Framework(
            ULTRALYTICS,
            "ultralytics",
            "save_period=N (epochs); it saves last.pt after every epoch",
            "model.train(resume=True)",
            "resume=True",
            "the last*.pt that was changed last, anywhere below the folder",
        ),
        Framework(
            TIMM,
            "timm",
            "--recovery-interval N; it saves last.pth.tar after every epoch",
            "--resume PATH",
            "--resume",
            "none: the path is given",
        ),
        Framework(
            SAMESTEP,
            "samestep",
            "samestep.Run(..., save=N)",
            "the same command again: samestep.Run resumes by itself",
            "",
            "the newest bundle that is whole and was committed, whose attempt no newer one had fenced",
        ),
    )
}
"""Every known framework by name."""


def framework_hint(root: Path) -> str | None:
    """Return the name of the framework whose checkpoints lie below ``root``, if it is a known one.

    Where there are several, the one with the most checkpoint units is meant.
    """
    names = [unit.framework for unit in find_units(root, exports=True) if unit.framework != UNKNOWN]
    return max(sorted(set(names)), key=names.count, default=None)
