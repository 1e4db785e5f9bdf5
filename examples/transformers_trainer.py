"""A small BERT trained with the transformers Trainer.

    python examples/transformers_trainer.py --out runs/bert

Start it again after an interruption and it resumes from the newest checkpoint, as the documentation suggests.
"""

import argparse
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

VOCABULARY, LENGTH, SAMPLES = 64, 16, 48


class Sequences(Dataset):
    """Random tokens; the label says whether the small ones are in the majority."""

    def __init__(self):
        source = torch.Generator().manual_seed(11)
        self.tokens = torch.randint(VOCABULARY, (SAMPLES, LENGTH), generator=source)
        self.labels = ((self.tokens < VOCABULARY // 2).sum(dim=1) > LENGTH // 2).long()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.labels[index]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    set_seed(0)

    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
    )
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
    trainer = Trainer(model=BertForSequenceClassification(config), args=arguments, train_dataset=Sequences())
    last = get_last_checkpoint(out) if out.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(out / "final")


if __name__ == "__main__":
    main()
