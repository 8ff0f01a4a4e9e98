"""Keras 3 on PyTorch, after its guide "Introduction to Keras for engineers".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys

import keras
import numpy as np
from trainer.slow_input import SAVE_EVERY, STEPS, wait


class Rows(keras.utils.PyDataset):
    def __len__(self):
        return SAVE_EVERY

    def __getitem__(self, index):
        wait()
        return np.ones((4, 4)), np.zeros((4, 1))


model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(optimizer="sgd", loss="mse")
model.fit(
    Rows(), epochs=STEPS // SAVE_EVERY, callbacks=[keras.callbacks.BackupAndRestore(sys.argv[1])]
)
