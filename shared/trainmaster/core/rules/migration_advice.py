"""Advice about programs by the error that they end with.

Most were written for the service's past runtimes.

docs/migrating.md says the same at more length.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from trainmaster.core.events import ExitCause, ReplicaExited

PACKAGES: Final = {
    "PIL": "Pillow",
    "fsspec": "fsspec",
    "gcsfs": "gcsfs",
    "google.cloud": "google-cloud-storage",
    "google.cloud.bigquery": "google-cloud-bigquery",
    "google.cloud.storage": "google-cloud-storage",
    "googleapiclient": "google-api-python-client",
    "h5py": "h5py",
    "hypertune": "cloudml-hypertune",
    "joblib": "joblib",
    "numpy": "numpy",
    "oauth2client": "oauth2client",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "requests": "requests",
    "scipy": "scipy",
    "six": "six",
    "sklearn": "scikit-learn",
    "tensorflow_hub": "tensorflow-hub",
    "tensorflow_probability": "tensorflow-probability",
    "torchvision": "torchvision",
    "xgboost": "xgboost",
    "yaml": "PyYAML",
}
"""Modules of the service's past runtimes, and the packages that have them.

Source: its runtime version list.
"""

OWN_IMAGE: Final = (
    "An image of your own still runs it as it is: build it FROM"
    " us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-11.py310 with your package, and name it in"
    " `masterConfig.imageUri`."
)

_NO_MODULE: Final = re.compile(r"No module named '?([\w.]+)'?")


_PROGRAM_FAILURES: Final = {
    r"sklearn\.externals": (
        "scikit-learn 0.23 removed `sklearn.externals`: write `import joblib` and `import six`, and"
        " add both to `install_requires` in setup.py."
    ),
    r"has no attribute 'estimator'"
    r"|No module named '?tensorflow_estimator"
    r"|tensorflow\.python\.estimator": (
        "TensorFlow 2.16 removed `tf.estimator`: train with `model.fit` of Keras, whose"
        f" BackupAndRestore callback continues after a restart. {OWN_IMAGE}"
    ),
    r"tensorflow\.contrib|module 'tensorflow' has no attribute 'contrib'": (
        "TensorFlow 2 has no `tf.contrib`: its parts are in Keras, tf.data and separate packages."
        f" {OWN_IMAGE}"
    ),
    r"module 'tensorflow' has no attribute"
    r" '(?:ConfigProto|GPUOptions|Session|app|flags|get_variable|gfile"
    r"|global_variables_initializer|layers|logging|log|placeholder|python_io|set_random_seed"
    r"|variable_scope)'": (
        "This is the API of TensorFlow 1: write `import tensorflow.compat.v1 as tf` and"
        f" `tf.disable_v2_behavior()`, or rewrite the model with Keras. {OWN_IMAGE}"
    ),
    r"PerReplica:|\bKeras 3\b|Argument\(s\) not recognized: \{'lr'|has no attribute"
    r" '(?:lr|fit_generator)'"
    r"|Invalid filepath extension for saving|must end in `\.(?:keras|weights\.h5)`|KerasTensor"
    r" cannot be used"
    r"|Unrecognized keyword arguments passed to|fit\(\) got an unexpected keyword argument"
    r"|module 'keras(?:\.[\w.]+)?' has no attribute": (
        'This is the API of Keras 2: set `trainmaster: {env: {TF_USE_LEGACY_KERAS: "1"}}` in the'
        " job file, which makes `tf.keras` Keras 2, or change the program for Keras 3."
    ),
    r"module 'numpy' has no attribute '(?:bool|complex|float|int|object|str)'": (
        "NumPy 1.24 removed its names of Python's own types: write `float` instead of `np.float`."
    ),
    r"No valid checkpoint found in output directory": (
        "`resume_from_checkpoint=True` needs a checkpoint in the first run, too: pass"
        " `get_last_checkpoint(output_dir)` of `transformers.trainer_utils`, which returns None"
        " from an empty folder."
    ),
}
"""Advice by a pattern of the error's message."""
_INSTALL_FAILURES: Final = {
    r"The user requested \(constraint\) [\w.-]+==": (
        "The runtime's build of this framework drives the VM's accelerator, so no package replaces"
        " it: remove the pin from `install_requires` in setup.py, or request another"
        " `runtimeVersion`."
    ),
    r"requires a different Python": (
        "The package excludes the runtime's Python: widen `python_requires` in setup.py."
    ),
    r"No matching distribution found for \S*[=<]=?[\d.*]+": (
        "The package pins a version that does not exist for the Python of the runtime: remove the"
        f" pin from `install_requires` in setup.py; the runtime has its framework. {OWN_IMAGE}"
    ),
}
"""The same by a pattern of pip's output."""


def advice(event: ReplicaExited) -> str:
    """Return what to change in a program that ended like this; empty if nothing is known."""
    if event.cause is ExitCause.INSTALL:
        return _find(_INSTALL_FAILURES, event.tail)
    if event.error is None:
        return ""
    return _find(_PROGRAM_FAILURES, event.error.message) or _missing_package(event.error.message)


def _find(failures: Mapping[str, str], text: str) -> str:
    return next((words for pattern, words in failures.items() if re.search(pattern, text)), "")


def _missing_package(message: str) -> str:
    match = _NO_MODULE.search(message)
    module = match[1] if match else ""
    package = PACKAGES.get(module) or PACKAGES.get(module.partition(".")[0])
    if package is None:
        return ""
    return (
        f'The service\'s past runtimes had `{module}`: add `install_requires=["{package}"]` to'
        " setup.py."
    )
