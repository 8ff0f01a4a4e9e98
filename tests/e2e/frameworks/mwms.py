"""TensorFlow, after its tutorial "Multi-worker training with Keras", which was written
for Keras 2.

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys

import tensorflow as tf
from trainer.slow_input import SAVE_EVERY, STEPS, wait


def rows():
    while True:
        wait()
        yield [[1.0] * 4] * 4, [[0.0]] * 4


strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(4,))])
    model.compile(optimizer=tf.keras.optimizers.SGD(learning_rate=1e-3), loss="mse")
signature = (tf.TensorSpec((4, 4), tf.float32), tf.TensorSpec((4, 1), tf.float32))
options = tf.data.Options()
options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
dataset = tf.data.Dataset.from_generator(rows, output_signature=signature).with_options(options)
backup = tf.keras.callbacks.BackupAndRestore(sys.argv[1])
model.fit(dataset, epochs=STEPS // SAVE_EVERY, steps_per_epoch=SAVE_EVERY, callbacks=[backup])
