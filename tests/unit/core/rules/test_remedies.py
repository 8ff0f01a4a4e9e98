"""Advice about programs, by the messages that Python, TensorFlow, scikit-learn and pip print.

It fits the error, the runtime and the way of submission.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import CHIEF, a_plan, exited
from tests.unit.core.rules.failed_programs import (
    CONTAINER,
    FOLDER,
    PACKAGE,
    a_job_plan,
    advice,
    error,
)
from trainmaster.agent.program.program import OUT_OF_MEMORY
from trainmaster.core.events import ExitCause, ProgramError
from trainmaster.core.model.task_group import Program
from trainmaster.core.rules.messages import replica_failed, summary
from trainmaster.core.rules.remedies import FOLDER_MODULE, PEER_ENDED, RUNTIMES_WITH, remedy_of_exit
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.jobspec.catalog.service_packages import package_name
from trainmaster.wiring.folders import MODULE

NO_FILE = "[Errno 2] No such file or directory: 'data/a.csv'"


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (
            error("ModuleNotFoundError", "No module named 'pandas'"),
            "Add pandas to `install_requires`",
        ),
        (
            error("ModuleNotFoundError", "No module named 'hypertune'"),
            "Add cloudml-hypertune to",
        ),
        (
            error("ModuleNotFoundError", "No module named 'google.cloud.storage'"),
            "Add google-cloud-storage to",
        ),
        (
            error("ModuleNotFoundError", "No module named 'PIL'"),
            "Add pillow to",
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
        ("ERROR: No matching distribution found for tensorflow==2.11.0", "correct the line"),
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
        error("AttributeError", "'NoneType' object has no attribute 'estimator_name'"),
        error("ValueError", "bad shape"),
    ],
)
def test_other_failure_has_no_advice(raised: ProgramError | None) -> None:
    assert advice(exited(CHIEF, 1, error=raised)) == ""


def test_error_message_names_the_cause_and_the_change_before_the_output() -> None:
    raised = error("ModuleNotFoundError", "No module named 'pandas'")
    lines = replica_failed(
        exited(CHIEF, 1, error=raised, tail="start\nTraceback …"), a_job_plan()
    ).splitlines()
    assert lines[0] == "The replica chief 0 exited with a non-zero status of 1. "
    assert (
        lines[1] == "ModuleNotFoundError: No module named 'pandas' (trainer/task.py:3 in <module>)"
    )
    assert lines[2].startswith("Add pandas to `install_requires` in setup.py")
    assert lines[3:] == ["", "start", "Traceback …"]


def test_summary_of_an_error_message_has_no_output_of_the_program() -> None:
    raised = error("ValueError", "bad shape")
    with_cause = replica_failed(
        exited(CHIEF, 1, error=raised, tail="start\n\nTraceback …"), a_job_plan()
    )
    assert (
        summary(with_cause)
        == "The replica chief 0 exited with a non-zero status of 1. ValueError: bad shape"
        " (trainer/task.py:3 in <module>)"
    )
    without_cause = replica_failed(exited(CHIEF, 1, tail="start\nend"), a_job_plan())
    assert (
        summary(without_cause)
        == 'The replica chief 0 exited with a non-zero status of 1. Its output ends with "end"'
    )
    without_output = replica_failed(exited(CHIEF, 1), a_job_plan())
    assert summary(without_output) == "The replica chief 0 exited with a non-zero status of 1."


@pytest.mark.parametrize(
    ("entrance", "error_type", "message", "expected"),
    [
        (
            FOLDER,
            "ModuleNotFoundError",
            "No module named 'einops'",
            "Add einops to requirements.txt",
        ),
        (
            FOLDER,
            "ModuleNotFoundError",
            "No module named 'cv2'",
            "opencv-python to requirements.txt",
        ),
        (
            FOLDER,
            "ModuleNotFoundError",
            "No module named 'torch'",
            "`--runtime-version pytorch-2.13`",
        ),
        (
            PACKAGE,
            "ModuleNotFoundError",
            "No module named 'torch'",
            "torch to `install_requires`",
        ),
        (
            PACKAGE,
            "ModuleNotFoundError",
            "No module named 'trainer.task.py'",
            "write trainer.task.",
        ),
        (FOLDER, "SyntaxError", "invalid syntax (train.py, line 3)", "Correct the line"),
        (
            PACKAGE,
            "ModuleNotFoundError",
            "No module named 'einops'",
            "einops to `install_requires`",
        ),
        (
            CONTAINER,
            "ModuleNotFoundError",
            "No module named 'torch'",
            "Add torch to the container image",
        ),
        (FOLDER, "FileNotFoundError", NO_FILE, "data/a.csv is not on the VM: add it to your"),
        (PACKAGE, "FileNotFoundError", NO_FILE, "data/a.csv is not on the VM: pack it with"),
        (
            FOLDER,
            "ImportError",
            "cannot import name 'Netz' from 'model' (/run/model.py)",
            "Correct the name: model has no Netz",
        ),
        (
            FOLDER,
            "ImportError",
            "cannot import name 'X' from partially initialized module 'a' (/run/a.py)",
            "The file that the error names and a import each other",
        ),
        (PACKAGE, "IndentationError", "unexpected indent (train.py, line 3)", "Correct the line"),
    ],
)
def test_remedy_names_the_file_or_the_runtime_to_change(
    entrance: str, error_type: str, message: str, expected: str
) -> None:
    event = exited(CHIEF, 1, error=error(error_type, message))
    text = remedy_of_exit(event, a_job_plan(entrance))
    assert expected in text
    assert ("install_requires" in text) == ("install_requires" in expected)


def test_remedy_of_a_folders_installation_names_requirements_txt() -> None:
    event = exited(CHIEF, 1, cause=ExitCause.INSTALL)
    text = remedy_of_exit(event, a_job_plan(FOLDER))
    assert text.startswith("Correct requirements.txt in your folder")


@pytest.mark.parametrize(
    ("status", "tail", "expected"),
    [
        (2, "train.py: error: unrecognized arguments: --epoch-count 3\n", "--epoch-count 3"),
        (2, "python: can't open file '/run/trian.py': [Errno 2] No such file", "/run/trian.py"),
        (127, "nosuchprog cannot be started: No such file or directory\n", "nosuchprog"),
        (127, "./run cannot be started: Permission denied\n", "bash ./run"),
    ],
)
def test_remedy_of_wrong_usage_names_the_argument_or_the_file(
    status: int, tail: str, expected: str
) -> None:
    event = exited(CHIEF, status, tail=tail)
    assert expected in remedy_of_exit(event, a_job_plan(FOLDER))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("ERROR: No matching distribution found for torchmetrix==1.4", "requirements.txt in your"),
        ("ERROR: No matching distribution found for torchmetrix", "no package torchmetrix"),
        ("ERROR: Invalid requirement: 'numpy=2'", "pip cannot read a line of requirements.txt"),
    ],
)
def test_remedy_of_a_folders_requirement_names_requirements_txt(output: str, expected: str) -> None:
    event = exited(CHIEF, 1, cause=ExitCause.INSTALL, tail=output)
    assert expected in remedy_of_exit(event, a_job_plan(FOLDER)).replace("Requ", "requ")


def test_folders_have_the_module_that_the_rules_expect() -> None:
    assert MODULE == FOLDER_MODULE


@pytest.mark.parametrize(("module", "version"), RUNTIMES_WITH.items())
def test_runtime_of_a_module_is_the_newest_that_names_it_or_the_one_named_after_it(
    module: str, version: str
) -> None:
    having = [
        name
        for name, runtime in RUNTIMES.items()
        if {module, f"{module}-cpu"} & {package_name(package) for package in runtime.packages}
    ]
    in_all = len(having) == len(RUNTIMES)
    own = [name for name in having if name.startswith(module)] if in_all else having
    assert version == own[-1]


def test_remedy_of_a_module_whose_package_was_found_does_not_add_the_package() -> None:
    """Python names the whole module only if it has found its parent."""

    def remedy(message: str, entrance: str = FOLDER) -> str:
        event = exited(CHIEF, 1, error=error("ModuleNotFoundError", message))
        return remedy_of_exit(event, a_job_plan(entrance))

    assert remedy("No module named 'jax.config'") == (
        "jax was found, and has no module config. If jax is a library, another version of it has"
        " the module: name that in requirements.txt in your folder. If it is your own, add the file"
        " or correct the name."
    )
    assert "name that in `install_requires` in setup.py" in remedy(
        "No module named 'trainer.deep.tsk'", PACKAGE
    )
    shadow = "No module named 'jax.numpy'; 'jax' is not a package"
    assert remedy(shadow) == "Your file jax.py hides the package jax: give it another name."
    assert remedy("No module named 'google.cloud.storage'").startswith("Add google-cloud-storage")


@pytest.mark.parametrize(
    ("kind", "message", "expected"),
    [
        ("_pickle.UnpicklingError", "invalid load key, 'v'.", "git lfs pull"),
        (
            "RuntimeError",
            'Error(s) in loading state_dict for Linear:\n\tMissing key(s) in state_dict: "bias". ',
            "The checkpoint is of another model",
        ),
        (
            "ValueError",
            "loaded state dict contains a group that doesn't match the size of optimizer's group",
            "The checkpoint is of another model",
        ),
        ("EOFError", "EOF when reading a line", "no keyboard"),
        (
            "RuntimeError",
            "DataLoader worker (pid 21615) is killed by signal: Segmentation fault. ",
            "num_workers=0",
        ),
        ("RuntimeError", "DataLoader worker (pid(s) 7, 8) exited unexpectedly", "num_workers=0"),
        (
            "concurrent.futures.process.BrokenProcessPool",
            "A process in the process pool was terminated abruptly while the future was running",
            "trainmaster logs",
        ),
    ],
)
def test_remedy_of_an_input_that_does_not_fit(kind: str, message: str, expected: str) -> None:
    assert expected in advice(exited(CHIEF, 1, error=error(kind, message)))


def test_remedy_of_a_program_that_hung_when_memory_had_run_out_is_more_of_it() -> None:
    hung = error(
        "Silent",
        f"printed nothing for 60 s (stallTimeout)\nOutOfMemory: {OUT_OF_MEMORY['message']}",
    )
    ended = replace(exited(CHIEF, 134, error=hung), cause=ExitCause.STALLED)
    assert "choose a machine type with more memory" in advice(ended)


@pytest.mark.parametrize(
    ("message", "workers", "expected"),
    [
        ("'LOCAL_RANK'", 0, "A job of one machine has no ranks unless"),
        ("environment variable RANK expected, but not set", 0, "A job of one machine has no"),
        ("'RANK'", 0, "A job of one machine has no ranks unless"),
        ("'LOCAL_RANK'", 2, "On a machine with several GPUs, a launcher sets LOCAL_RANK:"),
        ("'RANK'", 2, "Evaluators, parameter servers and independent replicas have no ranks:"),
    ],
)
def test_remedy_of_a_missing_rank_fits_the_number_of_machines(
    message: str, workers: int, expected: str
) -> None:
    plan = a_plan(workers=workers)
    event = exited(CHIEF, 1, error=error("KeyError", message))
    assert remedy_of_exit(event, plan).startswith(expected)


@pytest.mark.parametrize("frame", ["<frozen os>:679 in __getitem__", "os.py:679 in __getitem__"])
def test_remedy_of_a_missing_variable_names_the_field_that_sets_it(frame: str) -> None:
    error = ProgramError("KeyError", "'WANDB_ENTITY'", frame, "train.py:3 in <module>")
    remedy = remedy_of_exit(exited(CHIEF, 1, error=error), a_plan())
    assert remedy == (
        "No environment variable WANDB_ENTITY is set: set it in `trainmaster.env`, or in"
        " `trainmaster.secrets` if it is one."
    )
    own = replace(error, frame="train.py:3 in <module>")
    assert remedy_of_exit(exited(CHIEF, 1, error=own), a_plan()) == ""


@pytest.mark.parametrize(
    ("raised", "workers", "command", "expected"),
    [
        (error("BrokenPipeError", "[Errno 32] Broken pipe"), 0, ("python", "train.py"), ""),
        (error("ConnectionError", "connection refused"), 0, ("python", "train.py"), ""),
        (error("ConnectionError", "connection refused"), 0, ("torchrun", "train.py"), PEER_ENDED),
        (error("ConnectionError", "connection refused"), 1, ("python", "train.py"), PEER_ENDED),
        (
            error("RuntimeError", "[gloo/transport/tcp/pair.cc:534] Connection closed by peer"),
            0,
            ("python", "train.py"),
            PEER_ENDED,
        ),
        (
            error(
                "requests.exceptions.ConnectionError",
                "HTTPConnectionPool(host='proxy', port=80): Max retries exceeded with url: /"
                " (Caused by NewConnectionError('Connection refused'))",
            ),
            1,
            ("python", "train.py"),
            "",
        ),
    ],
)
def test_only_ranks_have_ended_peers(
    raised: ProgramError, workers: int, command: tuple[str, ...], expected: str
) -> None:
    plan = a_plan(workers=workers, program=Program((), FOLDER_MODULE, command, None))
    assert remedy_of_exit(exited(CHIEF, 1, error=raised), plan) == expected


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (error("MemoryError", ""), "or choose a machine type with more memory."),
        (error("RuntimeError", "can't allocate memory"), "machine type with more memory"),
        (error("torch.cuda.OutOfMemoryError", "CUDA out of memory."), "a GPU with more memory"),
        (error("RuntimeError", "CUDA error: out of memory"), "a GPU with more memory"),
    ],
)
def test_lack_of_memory_names_what_has_more(raised: ProgramError, expected: str) -> None:
    assert expected in advice(exited(CHIEF, 1, error=raised))
