"""Hugging Face's Trainer, after `examples/pytorch/language-modeling/run_clm.py`.

`--deepspeed`: with a configuration file, after the page "DeepSpeed" of Transformers. On CPUs, the
Trainer counts the processes only in a state of Accelerate that names their backend, and the
variable ACCELERATE_USE_DEEPSPEED is set.

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import json
import sys
from pathlib import Path

import torch
from accelerate import PartialState
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


has_deepspeed = sys.argv[1] == "--deepspeed"
folder = sys.argv[1 + has_deepspeed]
Path(folder).mkdir(parents=True, exist_ok=True)
config = Path("ds_config.json")
automatic = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
# Not DeepSpeed's own Adam, which would be compiled.
optimizer = {"type": "AdamW", "params": {"lr": "auto", "torch_adam": True}}
zero = {"optimizer": optimizer, "zero_optimization": {"stage": 1}}
config.write_text(json.dumps({**zero, **dict.fromkeys(automatic, "auto")}))
if has_deepspeed:
    PartialState(backend="gloo")
arguments = TrainingArguments(
    output_dir=folder,
    deepspeed=str(config) if has_deepspeed else None,
    max_steps=STEPS,
    per_device_train_batch_size=1,
    save_steps=SAVE_EVERY,
    logging_steps=1,
    use_cpu=not has_deepspeed,  # it turns DeepSpeed off
    accelerator_config={"use_configured_state": has_deepspeed},
    report_to="tensorboard",
)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=50, n_positions=8))
Trainer(model, arguments, train_dataset=Texts()).train(
    resume_from_checkpoint=get_last_checkpoint(folder)
)
