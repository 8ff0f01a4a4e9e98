"""Advice about programs of the past, by the messages that Python, TensorFlow, scikit-learn and pip
really print.
"""

from __future__ import annotations

import pytest

from tests.support.jobs import CHIEF, exited
from trainmaster.core.events import ExitCause, ProgramError
from trainmaster.core.rules.messages import replica_failed, summary
from trainmaster.core.rules.migration_advice import advice


def error(type_: str, message: str) -> ProgramError:
    return ProgramError(
        type_, message, "trainer/task.py:3 in <module>", "trainer/task.py:3 in <module>"
    )


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (error("ModuleNotFoundError", "No module named 'pandas'"), 'install_requires=["pandas"]'),
        (
            error("ModuleNotFoundError", "No module named 'hypertune'"),
            'install_requires=["cloudml-hypertune"]',
        ),
        (
            error("ModuleNotFoundError", "No module named 'google.cloud.storage'"),
            '["google-cloud-storage"]',
        ),
        (
            error("ModuleNotFoundError", "No module named 'PIL.Image'"),
            'install_requires=["Pillow"]',
        ),
        (
            error("ModuleNotFoundError", "No module named 'sklearn.externals.joblib'"),
            "import joblib",
        ),
        (
            error("ImportError", "cannot import name 'joblib' from 'sklearn.externals' (/x)"),
            "import joblib",
        ),
        (
            error("AttributeError", "module 'tensorflow' has no attribute 'estimator'"),
            "removed `tf.estimator`",
        ),
        (
            error(
                "AttributeError",
                "module 'tensorflow._api.v2.compat.v1' has no attribute 'estimator'",
            ),
            "tf.estimator",
        ),
        (
            error("AttributeError", "module 'tensorflow' has no attribute 'Session'"),
            "tensorflow.compat.v1",
        ),
        (
            error("AttributeError", "module 'tensorflow' has no attribute 'placeholder'"),
            "tensorflow.compat.v1",
        ),
        (error("ModuleNotFoundError", "No module named 'tensorflow.contrib'"), "no `tf.contrib`"),
        (
            error("ValueError", "No valid checkpoint found in output directory (/gcs/b/x)"),
            "`get_last_checkpoint(",
        ),
        (
            error("AttributeError", "module 'numpy' has no attribute 'float'.\n`np.float` was"),
            "write `float`",
        ),
        *(
            (error(type_, message), "TF_USE_LEGACY_KERAS")
            for type_, message in (
                (
                    "ValueError",
                    (
                        "Attempt to convert a value (PerReplica:{\n  0: tf.Tensor(1.0)\n}) with an"
                        " unsupported type"
                    ),
                ),
                ("ValueError", "Argument(s) not recognized: {'lr': 0.1}"),
                (
                    "ImportError",
                    (
                        "`keras.optimizers.legacy` is not supported in Keras 3. When using"
                        " `tf.keras`, to"
                    ),
                ),
                (
                    "ValueError",
                    (
                        "The `save_format` argument is deprecated in Keras 3. Please remove this"
                        " argument"
                    ),
                ),
                (
                    "ValueError",
                    (
                        "File format not supported: filepath=/m. Keras 3 only supports V3 `.keras`"
                        " files"
                    ),
                ),
                (
                    "ValueError",
                    "Invalid filepath extension for saving. Please add either a `.keras` extension",
                ),
                (
                    "ValueError",
                    (
                        "The filepath provided must end in `.keras` (Keras model format). Received:"
                        " /tmp/ck"
                    ),
                ),
                ("ValueError", "The filename must end in `.weights.h5`. Received: filepath=/tmp/w"),
                (
                    "ValueError",
                    (
                        "Unrecognized keyword arguments passed to Dense: {'batch_input_shape':"
                        " (None, 2)}"
                    ),
                ),
                (
                    "ValueError",
                    (
                        "A KerasTensor cannot be used as input to a TensorFlow function. A"
                        " KerasTensor is"
                    ),
                ),
                (
                    "TypeError",
                    "TensorFlowTrainer.fit() got an unexpected keyword argument 'workers'",
                ),
                ("AttributeError", "'Sequential' object has no attribute 'fit_generator'"),
                ("AttributeError", "'Adam' object has no attribute 'lr'"),
                (
                    "AttributeError",
                    "module 'keras._tf_keras.keras.layers' has no attribute 'experimental'",
                ),
                ("AttributeError", "module 'keras.utils' has no attribute 'multi_gpu_model'"),
            )
        ),
    ],
)
def test_failure_of_a_program_of_the_past_is_answered_with_the_change(
    raised: ProgramError, expected: str
) -> None:
    assert expected in advice(exited(CHIEF, 1, error=raised))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("ERROR: No matching distribution found for tensorflow==2.11.0", "remove the pin"),
        (
            "    The user requested (constraint) tensorflow==2.20.1\nERROR: ResolutionImpossible",
            "runtimeVersion",
        ),
        (
            "ERROR: Package 'trainer' requires a different Python: 3.12.3 not in '<3.8,>=3.6'",
            "python_requires",
        ),
    ],
)
def test_pin_of_the_past_is_answered_with_the_change(output: str, expected: str) -> None:
    assert expected in advice(exited(CHIEF, 1, cause=ExitCause.INSTALL, tail=output))


@pytest.mark.parametrize(
    "raised",
    [
        None,
        error("ModuleNotFoundError", "No module named 'trainer.model'"),
        error("AttributeError", "'NoneType' object has no attribute 'estimator_name'"),
        error("ValueError", "bad shape"),
    ],
)
def test_other_failure_has_no_advice(raised: ProgramError | None) -> None:
    assert advice(exited(CHIEF, 1, error=raised)) == ""


def test_error_message_names_the_cause_and_the_change_before_the_output() -> None:
    raised = error("ModuleNotFoundError", "No module named 'pandas'")
    lines = replica_failed(exited(CHIEF, 1, error=raised, tail="start\nTraceback …")).splitlines()
    assert lines[0] == "The replica chief 0 exited with a non-zero status of 1. "
    assert (
        lines[1] == "ModuleNotFoundError: No module named 'pandas' (trainer/task.py:3 in <module>)"
    )
    assert lines[2].startswith("The service's past runtimes had `pandas`")
    assert lines[3:] == ["", "start", "Traceback …"]


def test_summary_of_an_error_message_has_no_output_of_the_program() -> None:
    raised = error("ValueError", "bad shape")
    with_cause = replica_failed(exited(CHIEF, 1, error=raised, tail="start\n\nTraceback …"))
    assert (
        summary(with_cause)
        == "The replica chief 0 exited with a non-zero status of 1. ValueError: bad shape"
        " (trainer/task.py:3 in <module>)"
    )
    without_cause = replica_failed(exited(CHIEF, 1, tail="start\nend"))
    assert summary(without_cause) == "The replica chief 0 exited with a non-zero status of 1."
