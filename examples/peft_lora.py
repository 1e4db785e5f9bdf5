"""LoRA fine-tuning of a small GPT-2 with peft and the transformers Trainer.

python examples/peft_lora.py --out runs/lora
"""

import argparse
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

VOCABULARY, LENGTH, SAMPLES = 64, 16, 40


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

    # The frozen base model is made from its seed; a real one comes from a hub or a folder.
    base = GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2)
    )
    lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True)
    arguments = TrainingArguments(
        output_dir=out,
        max_steps=20,
        per_device_train_batch_size=4,
        gradient_accumulation_steps=2,
        learning_rate=5e-3,
        save_steps=4,
        logging_steps=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
    )
    trainer = Trainer(model=get_peft_model(base, lora), args=arguments, train_dataset=Sequences())
    last = get_last_checkpoint(out) if out.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    trainer.save_model(out / "adapter")


if __name__ == "__main__":
    main()
