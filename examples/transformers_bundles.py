"""A small BERT trained with the transformers Trainer, kept as bundles: workers, random masking, early stopping.

    python examples/transformers_bundles.py --out runs/bert

Two lines make it exact: the callback, and ``resume_from_checkpoint``. Compare with transformers_trainer.py.
"""

import argparse
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    EarlyStoppingCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)

from samestep.integrations.transformers import Bundles

VOCABULARY, LENGTH, SAMPLES, MASK = 64, 16, 40, 0


class Masked(Dataset):
    """Random tokens, some of them masked anew each time; the label says whether the small ones are in the majority."""

    def __init__(self, seed):
        source = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(1, VOCABULARY, (SAMPLES, LENGTH), generator=source)
        self.labels = ((self.tokens < VOCABULARY // 2).sum(dim=1) > LENGTH // 2).long()

    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        masked = torch.rand(LENGTH) < 0.1
        return {"input_ids": self.tokens[index].masked_fill(masked, MASK), "labels": self.labels[index]}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
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
        output_dir=args.out / "trainer",
        num_train_epochs=3,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        dataloader_num_workers=args.workers,
        learning_rate=1e-3,
        warmup_steps=4,
        eval_strategy="epoch",
        save_steps=3,
        save_total_limit=1,
        logging_steps=1,
        metric_for_best_model="loss",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    bundles = Bundles(args.out / "bundles")
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=arguments,
        train_dataset=Masked(seed=11),
        eval_dataset=Masked(seed=12),
        callbacks=[EarlyStoppingCallback(early_stopping_patience=2, early_stopping_threshold=1.0), bundles],
    )
    trainer.train(resume_from_checkpoint=bundles.resume(trainer))


if __name__ == "__main__":
    main()
