import tensorflow as tf
from trainer.steps import take_steps

strategy = tf.distribute.MultiWorkerMirroredStrategy()


@tf.function
def total(value):
    return strategy.reduce("SUM", strategy.run(tf.identity, args=(value,)), axis=None)


take_steps(lambda value: float(total(tf.constant(value))))
