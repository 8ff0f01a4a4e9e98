import importlib.metadata
import os
from pathlib import Path

import torch

# torchmetrics imports torchvision if it is installed, even a build for another torch. This program needs neither.
real_distribution = importlib.metadata.distribution


def distribution(name):
    if name == "torchvision":
        raise importlib.metadata.PackageNotFoundError(name)
    return real_distribution(name)


importlib.metadata.distribution = distribution
import lightning  # noqa: E402

os.environ["NODE_RANK"] = os.environ["RANK"]
NODES = int(os.environ["WORLD_SIZE"])


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.step = 0

    def training_step(self, batch, _):
        return self.layer(batch[0]).sum()

    def on_train_batch_end(self, *_):
        finish = torch.tensor(float((Path.home() / "finish").exists()))
        self.trainer.should_stop = self.trainer.strategy.reduce(finish, reduce_op="sum").item() > 0
        self.step += 1
        print(f"step {self.step}", flush=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        import time

        time.sleep(0.2)
        return (torch.ones(1),)


print("begins", flush=True)
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
trainer = lightning.Trainer(
    accelerator="cpu", devices=1, num_nodes=NODES, strategy="ddp", max_epochs=-1, min_epochs=0, **quiet
)
trainer.fit(Model(), torch.utils.data.DataLoader(Slow(), batch_size=1))
