"""Keras 3 on JAX, after its guide "Distributed training with Keras 3".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
from pathlib import Path

import jax
import keras
import numpy as np
from trainer.slow_input import SAVE_EVERY, STEPS, wait

keras.distribution.initialize()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return SAVE_EVERY

    def __getitem__(self, index):
        wait()
        return np.ones((4, 4)), np.zeros((4, 1))


folder = Path(sys.argv[1], str(jax.process_index()))
folder.mkdir(parents=True, exist_ok=True)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
model.fit(Rows(), epochs=STEPS // SAVE_EVERY, callbacks=[keras.callbacks.BackupAndRestore(folder)])
