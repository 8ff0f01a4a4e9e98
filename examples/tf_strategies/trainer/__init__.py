"""Trainers for handwritten digits, one module for each kind of TensorFlow's distribution
strategies.

digits              flags, data, model and results, shared by the others
one_vm              MirroredStrategy, OneDeviceStrategy, CentralStorageStrategy
parameter_server    ParameterServerStrategy
evaluated           training with an evaluator
tpu                 TPUStrategy
"""

import importlib.util
import os

# Keras 3 supports few of these strategies; Keras 2 (the package tf_keras) supports all. TensorFlow
# reads the variable when it is imported. TPU VMs have no tf_keras, which would replace their
# TensorFlow; Keras 3 supports TPUStrategy.
if importlib.util.find_spec("tf_keras") is not None:
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
