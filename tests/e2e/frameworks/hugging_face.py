"""Hugging Face's Trainer, after `examples/pytorch/language-modeling/run_clm.py`."""

import sys
from pathlib import Path

import torch
from trainer.slow_input import SAVE_EVERY, STEPS, wait
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint


class Texts(torch.utils.data.Dataset):
    def __len__(self):
        return 4 * STEPS

    def __getitem__(self, index):
        wait()
        ids = torch.randint(0, 50, (8,))
        return {"input_ids": ids, "labels": ids}


Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
arguments = TrainingArguments(
    output_dir=sys.argv[1],
    max_steps=STEPS,
    per_device_train_batch_size=1,
    save_steps=SAVE_EVERY,
    logging_steps=1,
    use_cpu=True,
    report_to="tensorboard",
)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=50, n_positions=8))
Trainer(model, arguments, train_dataset=Texts()).train(resume_from_checkpoint=get_last_checkpoint(sys.argv[1]))
