"""Resolve `runtimeVersion` and `pythonVersion` to a current runtime; note substitutions."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import Final

from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Program, Variable
from trainmaster.jobspec.catalog.runtimes import (
    PAST_PYTHONS,
    PAST_RUNTIMES,
    RUNTIME_DEFAULT,
    RUNTIMES,
    TPU_PYTHON,
    Runtime,
)
from trainmaster.jobspec.fields.container_images import had_keras_2
from trainmaster.jobspec.formats.ai_platform import TrainingInput
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT

RUNTIME_PATH: Final[FieldPath] = (TRAINING_INPUT, "runtimeVersion")
PYTHON_PATH: Final[FieldPath] = (TRAINING_INPUT, "pythonVersion")
LEGACY_KERAS: Final = "TF_USE_LEGACY_KERAS"
"""Variable with which TensorFlow imports tf_keras, Keras 2, as `tf.keras`."""
_SIMILAR: Final = 0.5
"""Similarity, from 0 to 1, from which a version is suggested in place of an unknown one."""


def resolve_runtime(training: TrainingInput, problems: Problems, *, on_tpu: bool) -> Runtime:
    """Return the current runtime for the requested version.

    Without one it is the default, and nothing is noted.
    """
    requested = training.runtime_version or RUNTIME_DEFAULT
    past = PAST_RUNTIMES.get(requested)
    if past is None and requested not in RUNTIMES:
        nearest = difflib.get_close_matches(requested, RUNTIMES, n=1, cutoff=_SIMILAR)
        known = f"{', '.join(RUNTIMES)}; past versions: {', '.join(PAST_RUNTIMES)}"
        problem = f"is not a known runtime version: {quoted(requested)} (known: {known})"
        problems.add(RUNTIME_PATH, problem, example=next(iter(nearest), RUNTIME_DEFAULT))
        return RUNTIMES[RUNTIME_DEFAULT]
    version = past.replaced_by if past else requested
    runtime = runtime_for(version, RUNTIME_PATH, problems, on_tpu=on_tpu)
    if past or (on_tpu and training.runtime_version):
        replacement = runtime_label(version, runtime)
        reason = f"Runtime {requested} has different packages on TPUs."
        if past:
            reason = (
                f"Runtime version {requested} ended with AI Platform Training; its current"
                f" replacement is {replacement}."
            )
        problems.substitute(RUNTIME_PATH, requested, replacement, reason)
    pythons = past.pythons if past else (RUNTIMES[version].python, *PAST_PYTHONS)
    _check_python(training.python_version, pythons, runtime, problems)
    return runtime


def keep_keras_2(
    programs: dict[TaskType, Program], path: FieldPath, requested: str, problems: Problems
) -> dict[TaskType, Program]:
    """Return the programs with the variable that makes `tf.keras` Keras 2.

    A program that sets the variable itself stays as it is. `path`: the field that selects the
    runtime; `requested`: its value, a runtime version or a prebuilt image.
    """
    if requested not in PAST_RUNTIMES and not had_keras_2(requested):
        return programs
    kept = {task_type: _with_keras_2(program) for task_type, program in programs.items()}
    if kept != programs:
        reason = (
            'The requested runtime had Keras 2, which tf_keras provides (with "0" in'
            " trainmaster.env, it is Keras 3)."
        )
        problems.substitute(path, f"Keras of {requested}", f"{LEGACY_KERAS}=1", reason)
    return kept


def _with_keras_2(program: Program) -> Program:
    if any(variable.name == LEGACY_KERAS for variable in program.environment):
        return program
    return replace(program, environment=(*program.environment, Variable(LEGACY_KERAS, "1")))


def runtime_for(version: str, path: FieldPath, problems: Problems, *, on_tpu: bool) -> Runtime:
    """Return a runtime of the table, with its packages for TPU VMs if `on_tpu`.

    `path`: the field that selects it.
    """
    runtime = RUNTIMES[version]
    if not on_tpu:
        return runtime
    if not runtime.tpu_packages:
        supported = next(
            version for version, candidate in RUNTIMES.items() if candidate.tpu_packages
        )
        problems.add(path, f"selects {runtime.name}, which does not run on TPUs", example=supported)
    return replace(runtime, python=TPU_PYTHON, packages=runtime.tpu_packages, gpu_packages=())


def runtime_label(version: str, runtime: Runtime) -> str:
    """Name the runtime in a substitution: its version, or its packages if those are for TPUs."""
    return version if runtime == RUNTIMES[version] else " ".join(runtime.packages)


def _check_python(
    requested: str | None, allowed: tuple[str, ...], runtime: Runtime, problems: Problems
) -> None:
    if requested is None or requested == runtime.python or problems.has_any_at(RUNTIME_PATH):
        return
    if requested in allowed:
        reason = f"The runtime {runtime.name} has Python {runtime.python} only."
        problems.substitute(PYTHON_PATH, requested, runtime.python, reason)
    else:
        problem = (
            f"does not belong to this runtime version: {quoted(requested)} (it has"
            f" {' or '.join(allowed)})"
        )
        problems.add(PYTHON_PATH, problem, example=runtime.python)
