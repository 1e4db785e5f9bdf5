"""A small GPT-2 trained with the transformers Trainer.

    python examples/transformers_trainer.py --out runs/gpt2

Start it again after an interruption and it resumes from the newest checkpoint, as the documentation suggests.
"""

import argparse
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

VOCABULARY, LENGTH, SAMPLES = 64, 16, 48


class Sequences(Dataset):
    """Counting sequences with a random start and stride."""

    def __init__(self):
        source = torch.Generator().manual_seed(11)
        start = torch.randint(VOCABULARY, (SAMPLES, 1), generator=source)
        stride = torch.randint(1, 5, (SAMPLES, 1), generator=source)
        self.tokens = (start + stride * torch.arange(LENGTH)) % VOCABULARY

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    set_seed(0)

    config = GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
    arguments = TrainingArguments(
        output_dir=out,
        max_steps=24,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        warmup_steps=4,
        save_steps=6,
        save_total_limit=3,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=GPT2LMHeadModel(config), args=arguments, train_dataset=Sequences())
    last = get_last_checkpoint(out) if out.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(out / "final")


if __name__ == "__main__":
    main()
