"""Resolve the TrainingInput of an AI Platform job.

`accept` calls `resolve_training_input` with the parsed document, and makes the plan of the job from
the result.
"""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Container, Program, Variable
from trainmaster.jobspec.catalog.runtimes import CONTAINER_HOST, PAST_RUNTIMES, Runtime
from trainmaster.jobspec.fields.container_images import (
    check_image,
    note_prebuilt_image,
    runtime_of_prebuilt_image,
)
from trainmaster.jobspec.fields.google_resources import (
    check_kms_key,
    check_network,
    check_service_account,
)
from trainmaster.jobspec.fields.placement import resolve_region
from trainmaster.jobspec.fields.programs import check_directory, check_module, check_packages
from trainmaster.jobspec.fields.runtime_version import (
    PYTHON_PATH,
    RUNTIME_PATH,
    keep_keras_2,
    resolve_runtime,
    runtime_for,
    runtime_label,
)
from trainmaster.jobspec.formats.ai_platform import ReplicaConfig, TrainingInput
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.machines.role_request import RoleRequest
from trainmaster.jobspec.problems import FieldPath, Problems, quoted, yaml_line
from trainmaster.jobspec.reading.document_kinds import example_at
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT
from trainmaster.jobspec.resolve.builtin_algorithm import (
    IMAGE_PATH,
    algorithm_programs,
    algorithm_runtime,
    request_algorithm,
    stored_algorithm,
)
from trainmaster.jobspec.resolve.hyperparameters import resolve_hyperparameters
from trainmaster.jobspec.resolve.resolved_spec import MAX_RUNNING_S_DEFAULT, ResolvedSpec
from trainmaster.jobspec.resolve.roles import request_roles, role_configs

_MASTER_CONFIG_PATH: Final[FieldPath] = (TRAINING_INPUT, "masterConfig")
# Advice for a job without packages.
_FOLDER: Final = "or run a folder's program: `trainmaster submit FILE --folder . -- COMMAND`"


def resolve_training_input(
    training: TrainingInput,
    extension: Extension,
    variables: tuple[Variable, ...],
    problems: Problems,
) -> ResolvedSpec:
    """Return what the fields mean, and add their problems to `problems`.

    `variables`: environment variables of all programs.
    """
    image = training.master_config.image_uri
    scheduling = training.scheduling
    algorithm = request_algorithm(training, extension, problems)
    has_container = algorithm is None and _uses_container(training, problems)
    roles = request_roles(training, _primary_type(training), problems)
    on_tpu = any(role.is_tpu for role in roles)
    if algorithm is None:
        _check_configs(training, roles, problems, has_container=has_container)
    region_path: FieldPath = (TRAINING_INPUT, "region")
    region = resolve_region(training.region, region_path, extension, problems)
    key = training.encryption_config.kms_key_name
    check_service_account(training.service_account, (TRAINING_INPUT, "serviceAccount"), problems)
    check_network(training.network, (TRAINING_INPUT, "network"), problems)
    check_kms_key(key, region, (TRAINING_INPUT, "encryptionConfig", "kmsKeyName"), problems)
    if algorithm is not None:
        runtime = algorithm_runtime(algorithm, training, problems)
        programs = algorithm_programs(algorithm, training, roles, variables, problems)
    else:
        programs = _resolve_programs(
            training, roles, variables, problems, has_container=has_container
        )
        runtime = _resolve_runtime(training, problems, has_container=has_container, on_tpu=on_tpu)
        if not has_container:
            path = IMAGE_PATH if image else RUNTIME_PATH
            requested = image or training.runtime_version or ""
            programs = keep_keras_2(programs, path, requested, problems)
    names_runtime = training.runtime_version is not None or image is not None
    return ResolvedSpec(
        dialect=Dialect.AI_PLATFORM,
        roles=roles,
        programs=programs,
        runtime=runtime,
        is_runtime_requested=names_runtime or algorithm is not None,
        region=region,
        region_path=region_path,
        max_running_s=scheduling.max_running_time or MAX_RUNNING_S_DEFAULT,
        max_wait_s=scheduling.max_wait_time,
        priority=scheduling.priority or 0,
        service_account=training.service_account,
        network=training.network,
        kms_key=key,
        algorithm=stored_algorithm(algorithm),
        tuning=resolve_hyperparameters(training, problems),
    )


def _primary_type(training: TrainingInput) -> TaskType:
    """Return `chief` or `master`, the primary's name in TF_CONFIG.

    It is `chief` for runtime 2.1 and newer, `master` for 1.15 and older, and for containers
    `master` unless useChiefInTfConfig is set, which has no effect without a container. Source:
    release notes of March 2020.
    """
    if training.master_config.image_uri is not None:
        return TaskType.CHIEF if training.use_chief_in_tf_config else TaskType.MASTER
    past = PAST_RUNTIMES.get(training.runtime_version or "")
    return TaskType.MASTER if past is not None and not past.has_chief else TaskType.CHIEF


def _uses_container(training: TrainingInput, problems: Problems) -> bool:
    """Return whether the job runs a container image.

    One of Google's prebuilt images with a package counts as a runtime.
    """
    image = training.master_config.image_uri
    if image is None:
        return problems.has_any_at(IMAGE_PATH)  # an image that could not be read
    has_package = bool(training.package_uris and training.python_module)
    is_prebuilt = runtime_of_prebuilt_image(image) is not None
    return not (is_prebuilt and has_package)


def _resolve_runtime(
    training: TrainingInput, problems: Problems, *, has_container: bool, on_tpu: bool
) -> Runtime:
    """Return the runtime that is named, or that one of Google's prebuilt images stands for; for
    other containers, what their VMs need.
    """
    image = training.master_config.image_uri
    if image is None:
        return resolve_runtime(training, problems, on_tpu=on_tpu)
    check_image(image, IMAGE_PATH, problems)
    for path, value in (
        (RUNTIME_PATH, training.runtime_version),
        (PYTHON_PATH, training.python_version),
    ):
        if value is not None:
            problem = (
                f"cannot be combined with {problems.spelled_path(IMAGE_PATH)}: the image"
                " determines it"
            )
            example = (
                f"leave out {problems.spelled_name(path)} or {problems.spelled_name(IMAGE_PATH)}"
            )
            problems.add_text(path, problem, advice=example)
    version = None if has_container else runtime_of_prebuilt_image(image)
    if version is None:
        return CONTAINER_HOST
    runtime = runtime_for(version, IMAGE_PATH, problems, on_tpu=on_tpu)
    note_prebuilt_image(image, runtime_label(version, runtime), IMAGE_PATH, problems)
    return runtime


def _resolve_programs(
    training: TrainingInput,
    roles: tuple[RoleRequest, ...],
    variables: tuple[Variable, ...],
    problems: Problems,
    *,
    has_container: bool,
) -> dict[TaskType, Program]:
    """Return the program of each role that has replicas."""
    packages = training.package_uris
    packages_path = (TRAINING_INPUT, "packageUris")
    module = training.python_module
    module_path = (TRAINING_INPUT, "pythonModule")
    check_directory(training.job_dir, (TRAINING_INPUT, "jobDir"), problems)
    if has_container:
        for path, value in ((packages_path, packages), (module_path, module)):
            if value:
                problem = (
                    f"cannot be combined with {problems.spelled_path(IMAGE_PATH)}: a container has"
                    " its program"
                )
                problems.add_text(path, problem, advice="leave it out")
        return {role.task_type: _container_program(training, role, variables) for role in roles}
    if packages:
        check_packages(packages, packages_path, problems)
    else:
        name = problems.spelled_name(packages_path)
        example = yaml_line({name: example_at(packages_path)})
        problems.add_text(packages_path, "is required", advice=f"{example}; {_FOLDER}")
    check_module(module, module_path, problems)
    program = Program(
        packages, module or "", training.args, training.job_dir, environment=variables
    )
    return {role.task_type: program for role in roles}


def _container_program(
    training: TrainingInput, role: RoleRequest, variables: tuple[Variable, ...]
) -> Program:
    """Return the program of a role.

    A role without an image runs the master's, and so does the primary on a TPU.

    Without command and arguments the image's own run. A command runs without the image's arguments;
    arguments go to the image's ENTRYPOINT. Source: the API's schema, ReplicaConfig.
    """
    # By its type: the primary on a TPU has the role name "worker".
    is_primary = role.task_type in (TaskType.CHIEF, TaskType.MASTER)
    config = role_configs(training)["master" if is_primary else role.name]
    container = Container(
        config.image_uri or training.master_config.image_uri or "", config.container_command
    )
    args = training.args or config.container_args
    return Program(
        package_uris=(),
        python_module="",
        args=args,
        job_dir=training.job_dir,
        container=container,
        environment=variables,
    )


def _check_configs(
    training: TrainingInput,
    roles: tuple[RoleRequest, ...],
    problems: Problems,
    *,
    has_container: bool,
) -> None:
    """Check the fields of each role's config that are about its container."""
    for name, config in role_configs(training).items():
        path = (TRAINING_INPUT, f"{name}Config")
        is_tpu = any(role.name == name and role.is_tpu for role in roles)
        _check_container_fields(config, path, training, problems, has_container=has_container)
        _check_tpu_version(config, path, problems, is_tpu=is_tpu and has_container)


def _check_container_fields(
    config: ReplicaConfig,
    path: FieldPath,
    training: TrainingInput,
    problems: Problems,
    *,
    has_container: bool,
) -> None:
    is_master = path == _MASTER_CONFIG_PATH  # `_resolve_runtime` checks its image
    if config.image_uri is not None and not is_master:
        check_image(config.image_uri, (*path, "imageUri"), problems)
        if not has_container:
            problem = f"needs {problems.spelled_path(IMAGE_PATH)} as well"
            problems.add_text((*path, "imageUri"), problem, advice="set imageUri in masterConfig")
    for field, value in (
        ("containerCommand", config.container_command),
        ("containerArgs", config.container_args),
    ):
        if not value:
            continue
        if training.args:
            problem = f"cannot be combined with {problems.spelled_path((TRAINING_INPUT, 'args'))}"
            problems.add_text(
                (*path, field),
                problem,
                advice="set containerArgs in each role's config, and leave out args",
            )
        elif not has_container:
            problem = (
                f"can only be set for a container, and {problems.spelled_path(IMAGE_PATH)} is not"
                " given"
            )
            problems.add_text((*path, field), problem, advice="use args")


def _check_tpu_version(
    config: ReplicaConfig, path: FieldPath, problems: Problems, *, is_tpu: bool
) -> None:
    """Check `tpuTfVersion`.

    It named the TensorFlow version of the TPU; today the container has its own.
    """
    version = config.tpu_tf_version
    if version is None:
        return
    if not is_tpu:
        problem = "can only be set for a TPU worker that runs a container"
        problems.add_text((*path, "tpuTfVersion"), problem, advice="leave it out")
    elif version not in PAST_RUNTIMES:
        problem = f"must be one of {', '.join(PAST_RUNTIMES)}, not {quoted(version)}"
        problems.add((*path, "tpuTfVersion"), problem, example=list(PAST_RUNTIMES)[-1])
