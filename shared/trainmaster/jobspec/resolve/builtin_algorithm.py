"""Resolve a job that names a built-in algorithm by its former image or `trainmaster.algorithm`.

The job runs the algorithm's module in a current runtime. `fields.algorithm_arguments` checks its
arguments, and `machines.task_groups` its machines, so that a mistake costs no VM.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.origin import BuiltInAlgorithm
from trainmaster.core.model.package_uri import BUILT_IN
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Program, Variable
from trainmaster.jobspec.catalog.algorithms import (
    ALGORITHM_OF_IMAGE,
    ALGORITHMS,
    NOT_AVAILABLE,
    Algorithm,
    image_algorithm,
)
from trainmaster.jobspec.catalog.runtimes import RUNTIMES, Runtime
from trainmaster.jobspec.fields.programs import check_directory, require
from trainmaster.jobspec.formats.ai_platform import TrainingInput
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.machines.role_request import RoleRequest
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.field_names import EXTENSION, TRAINING_INPUT
from trainmaster.jobspec.resolve.roles import role_configs

ALGORITHM_PATH: Final[FieldPath] = (EXTENSION, "algorithm")
_SIMILAR: Final = 0.4
"""Similarity, from 0 to 1, from which an algorithm is suggested in place of an unknown name."""
IMAGE_PATH: Final[FieldPath] = (TRAINING_INPUT, "masterConfig", "imageUri")


@dataclass(frozen=True, slots=True)
class RequestedAlgorithm:
    """The algorithm that a job names."""

    path: FieldPath
    """Field that names it."""
    algorithm: Algorithm | None
    """None: there is no such algorithm, which is reported as a problem."""


def request_algorithm(
    training: TrainingInput, extension: Extension, problems: Problems
) -> RequestedAlgorithm | None:
    """Return the algorithm that the job names; None for a job with a program of its own."""
    image = training.master_config.image_uri
    of_image = image_algorithm(image) if image is not None else None
    named = extension.algorithm
    if named is None and of_image is None:
        return None
    if named is not None and image is not None:
        problem = (
            f"cannot be combined with {problems.spelled_path(IMAGE_PATH)}: each names what the job"
            " runs"
        )
        problems.add_text(ALGORITHM_PATH, problem, advice="leave one of them out")
        return RequestedAlgorithm(ALGORITHM_PATH, algorithm=None)
    path = ALGORITHM_PATH if of_image is None else IMAGE_PATH
    name = of_image or named or ""
    algorithm = ALGORITHM_OF_IMAGE.get(name) or ALGORITHMS.get(name)
    if algorithm is None:
        _refuse_name(name, path, problems)
    else:
        _check_fields(training, path, problems)
    return RequestedAlgorithm(path, algorithm)


def refuse_algorithm(extension: Extension, problems: Problems) -> None:
    """Add a problem if a CustomJob names an algorithm: only the other format has its fields."""
    if extension.algorithm is not None:
        problems.add_text(
            ALGORITHM_PATH,
            "is only for jobs with a trainingInput",
            advice="trainingInput: {args: [...]}",
        )


def algorithm_runtime(
    requested: RequestedAlgorithm, training: TrainingInput, problems: Problems
) -> Runtime:
    """Return the runtime of the algorithm, and note the image that it replaces."""
    # In place of an unknown algorithm any will do: the job is refused.
    algorithm = requested.algorithm or next(iter(ALGORITHMS.values()))
    image = training.master_config.image_uri
    if image is not None and requested.algorithm is not None:
        replacement = f"{algorithm.name} of Trainmaster on runtime {algorithm.runtime}"
        reason = (
            "The images of the built-in algorithms have ended with AI Platform Training;"
            " docs/algorithms.md lists what differs."
        )
        problems.substitute(requested.path, image, replacement, reason)
    return RUNTIMES[algorithm.runtime]


def algorithm_programs(
    requested: RequestedAlgorithm,
    training: TrainingInput,
    roles: Sequence[RoleRequest],
    variables: tuple[Variable, ...],
    problems: Problems,
) -> dict[TaskType, Program]:
    """Return the program of each role, with checked arguments."""
    algorithm = requested.algorithm
    if algorithm is None:
        return {}
    # Only jobs with an algorithm need the tables of arguments.
    from trainmaster.jobspec.fields.algorithm_arguments import check_arguments

    args = training.args or training.master_config.container_args
    directory_path: FieldPath = (TRAINING_INPUT, "jobDir")
    require(training.job_dir, directory_path, problems)
    check_directory(training.job_dir, directory_path, problems)
    check_arguments(algorithm, args, training, problems)
    program = Program((BUILT_IN,), algorithm.module, args, training.job_dir, environment=variables)
    return {role.task_type: program for role in roles}


def stored_algorithm(requested: RequestedAlgorithm | None) -> BuiltInAlgorithm | None:
    """Return what the plan records about the algorithm."""
    algorithm = requested.algorithm if requested else None
    if algorithm is None:
        return None
    python = RUNTIMES[algorithm.runtime].python
    return BuiltInAlgorithm(algorithm.name, algorithm.framework, algorithm.runtime, python)


def _refuse_name(name: str, path: FieldPath, problems: Problems) -> None:
    if name in NOT_AVAILABLE:
        problem = (
            f"names the built-in algorithm {name}, which Trainmaster does not have:"
            f" {NOT_AVAILABLE[name]}"
        )
        problems.add_text(
            path, problem, advice="packageUris and pythonModule, or an image of your own"
        )
        return
    nearest = difflib.get_close_matches(name, ALGORITHMS, n=1, cutoff=_SIMILAR)
    example = next(iter(nearest), "boosted_trees")
    if path == IMAGE_PATH:
        example = f"gcr.io/cloud-ml-algos/{ALGORITHMS[example].images[0]}"
    problem = f"names {quoted(name)}, which is not a built-in algorithm ({', '.join(ALGORITHMS)})"
    problems.add(path, problem, example=example)


def _check_fields(training: TrainingInput, named_by: FieldPath, problems: Problems) -> None:
    """Refuse fields that an algorithm determines itself."""
    determined: dict[FieldPath, object] = {
        (TRAINING_INPUT, "packageUris"): training.package_uris,
        (TRAINING_INPUT, "pythonModule"): training.python_module,
        (TRAINING_INPUT, "runtimeVersion"): training.runtime_version,
        (TRAINING_INPUT, "pythonVersion"): training.python_version,
    }
    for role, config in role_configs(training).items():
        path: FieldPath = (TRAINING_INPUT, f"{role}Config")
        determined[(*path, "containerCommand")] = config.container_command
        if role != "master" or training.args:  # without args, the master's are the arguments
            determined[(*path, "containerArgs")] = config.container_args
        if config.image_uri != training.master_config.image_uri:
            determined[(*path, "imageUri")] = config.image_uri
    for path, value in determined.items():
        if value:
            problem = (
                f"cannot be combined with {problems.spelled_path(named_by)}: the algorithm"
                " determines it"
            )
            problems.add_text(path, problem, advice="leave it out")
