"""Lightning, after its page "Run on an on-prem cluster".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from trainer.slow_input import SAVE_EVERY, STEPS, wait


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        loss = self.layer(batch).pow(2).mean()
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2 * STEPS

    def __getitem__(self, index):
        wait()
        return torch.ones(4)


checkpoints = ModelCheckpoint(dirpath=sys.argv[1], every_n_train_steps=SAVE_EVERY, save_last=True)
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1,
    num_nodes=2,
    strategy="ddp",
    max_epochs=1,
    logger=False,
    callbacks=[checkpoints],
)
trainer.fit(Model(), torch.utils.data.DataLoader(Rows(), batch_size=1), ckpt_path="last")
