"""Handwritten digits under TensorFlow's distribution strategies, a module each; `digits` is what they share.

one_vm              MirroredStrategy, OneDeviceStrategy, CentralStorageStrategy
parameter_server    ParameterServerStrategy
evaluated           training, and an evaluator beside it
tpu                 TPUStrategy
"""

import importlib.util
import os

# Keras 3 knows few of these strategies; Keras 2 (the package tf_keras) knows all. Read when TensorFlow is imported.
# TPU VMs have no tf_keras, as it would replace their TensorFlow; TPUStrategy is one of the few.
if importlib.util.find_spec("tf_keras") is not None:
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
