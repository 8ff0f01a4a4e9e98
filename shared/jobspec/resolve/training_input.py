"""A TrainingInput → what it means, in parts."""

from __future__ import annotations

from typing import Final

from shared.core.model.job import Container, Dialect, Program, Substitution
from shared.core.model.replica_id import TaskType
from shared.jobspec.catalog.runtimes import CONTAINER_HOST, PAST_RUNTIMES, Runtime
from shared.jobspec.fields.common import (
    MAX_WAIT_S_MIN,
    check_account,
    check_key,
    check_network,
    check_priority,
    check_running_time,
    check_waiting_time,
)
from shared.jobspec.fields.container_images import check_image, instead_of, prebuilt_version
from shared.jobspec.fields.extension_fields import Extras, region_of
from shared.jobspec.fields.programs import check_directory, check_module, check_packages, require
from shared.jobspec.fields.runtime_version import PYTHON_AT, RUNTIME_AT, name_of, resolve_runtime, runtime_of
from shared.jobspec.formats.ai_platform import EncryptionConfig, ReplicaConfig, Scheduling, TrainingInput
from shared.jobspec.formats.extension import Extension
from shared.jobspec.machines.role_request import Role
from shared.jobspec.reading.document_kinds import TRAINING_INPUT
from shared.jobspec.reading.problems import Findings, Loc, given
from shared.jobspec.resolve.hyperparameters import tuning_of
from shared.jobspec.resolve.resolved_spec import Meaning
from shared.jobspec.resolve.roles import ROLE_NAMES, config_of, roles_of

_IMAGE_AT: Final[Loc] = (TRAINING_INPUT, "masterConfig", "imageUri")


def meaning_of(training: TrainingInput, extension: Extension, extras: Extras, found: Findings) -> Meaning:
    substitutions: list[Substitution] = []
    has_container = _has_container(training, found)
    roles = roles_of(training, primary_type(training, has_image=_image(training) is not None), found, substitutions)
    on_tpu = any(role.is_tpu for role in roles)
    _check_configs(training, roles, found, has_container=has_container)
    scheduling = training.scheduling or Scheduling.model_validate({})
    at: Loc = (TRAINING_INPUT, "scheduling")
    region_at: Loc = (TRAINING_INPUT, "region")
    region = region_of(training.region, region_at, extension, found)
    key = (training.encryption_config or EncryptionConfig.model_validate({})).kms_key_name
    check_account(training.service_account, (TRAINING_INPUT, "serviceAccount"), found)
    check_network(training.network, (TRAINING_INPUT, "network"), found)
    check_key(key, region, (TRAINING_INPUT, "encryptionConfig", "kmsKeyName"), found)
    return Meaning(
        dialect=Dialect.AI_PLATFORM,
        roles=roles,
        programs=_programs(training, roles, extras, found, has_container=has_container),
        runtime=_runtime(training, found, substitutions, has_container=has_container, on_tpu=on_tpu),
        is_runtime_named=training.runtime_version is not None or _image(training) is not None,
        region=region,
        region_at=region_at,
        max_running_s=check_running_time(scheduling.max_running_time, (*at, "maxRunningTime"), found),
        max_wait_s=check_waiting_time(scheduling.max_wait_time, (*at, "maxWaitTime"), found, least_s=MAX_WAIT_S_MIN),
        priority=check_priority(scheduling.priority, (*at, "priority"), found),
        service_account=training.service_account,
        network=training.network,
        kms_key=key,
        substitutions=substitutions,
        tuning=tuning_of(training, found, substitutions),
    )


def primary_type(training: TrainingInput, *, has_image: bool) -> TaskType:
    """Source: release notes of March 2020: runtime 2.1 and newer say `chief` in TF_CONFIG, 1.15 and older `master`, and
    so do containers unless useChiefInTfConfig is set; that field means nothing without a container."""
    if has_image:
        return TaskType.CHIEF if training.use_chief_in_tf_config else TaskType.MASTER
    past = PAST_RUNTIMES.get(training.runtime_version or "")
    return TaskType.MASTER if past is not None and not past.has_chief else TaskType.CHIEF


def _image(training: TrainingInput) -> str | None:
    return config_of(training, "master").image_uri


def _has_container(training: TrainingInput, found: Findings) -> bool:
    """Whether an image of its own is what the job runs: not where it is one of Google's for a package to run in."""
    image = _image(training)
    if image is None:
        return found.doubtful(_IMAGE_AT)
    is_for_packages = prebuilt_version(image) is not None and training.package_uris and training.python_module
    return not is_for_packages


def _runtime(
    training: TrainingInput,
    found: Findings,
    substitutions: list[Substitution],
    *,
    has_container: bool,
    on_tpu: bool,
) -> Runtime:
    image = _image(training)
    if image is None:
        return resolve_runtime(training, found, substitutions, on_tpu=on_tpu)
    check_image(image, _IMAGE_AT, found)
    for at, value in ((RUNTIME_AT, training.runtime_version), (PYTHON_AT, training.python_version)):
        if value is not None:
            problem = f"does not go with {found.path(_IMAGE_AT)}, which brings its own"
            found.add_text(at, problem, f"leave out {found.name(at)} or {found.name(_IMAGE_AT)}")
    version = None if has_container else prebuilt_version(image)
    if version is None:
        return CONTAINER_HOST
    runtime = runtime_of(version, _IMAGE_AT, found, on_tpu=on_tpu)
    substitutions.append(instead_of(image, name_of(version, runtime), _IMAGE_AT, found))
    return runtime


def _programs(
    training: TrainingInput, roles: tuple[Role, ...], extras: Extras, found: Findings, *, has_container: bool
) -> dict[TaskType, Program]:
    packages, module = training.package_uris or (), training.python_module
    at: dict[str, Loc] = {name: (TRAINING_INPUT, name) for name in ("packageUris", "pythonModule", "jobDir")}
    if training.job_dir is not None:
        check_directory(training.job_dir, at["jobDir"], found)
    if has_container:
        for name, value in (("packageUris", packages), ("pythonModule", module)):
            if value:
                problem = f"does not go with {found.path(_IMAGE_AT)}: a container runs what is in it"
                found.add_text(at[name], problem, "leave it out")
        return {role.task_type: _container_program(training, role, extras) for role in roles}
    require(packages, at["packageUris"], found)
    check_packages(packages, at["packageUris"], found)
    require(module, at["pythonModule"], found)
    if module is not None:
        check_module(module, at["pythonModule"], found)
    program = Program(packages, module or "", training.args or (), training.job_dir, environment=extras.variables)
    return {role.task_type: program for role in roles}


def _container_program(training: TrainingInput, role: Role, extras: Extras) -> Program:
    """A role without an image of its own runs the master's. So does the one on a TPU, in the master's place.

    Neither command nor arguments: the image's own. A command alone: only it. Arguments alone: the image's ENTRYPOINT
    with these. Source: the API's schema, ReplicaConfig.
    """
    is_primary = role.task_type in (TaskType.CHIEF, TaskType.MASTER)
    config = config_of(training, "master" if is_primary else role.name)
    container = Container(config.image_uri or _image(training) or "", config.container_command or ())
    args = training.args or config.container_args or ()
    return Program((), "", args, training.job_dir, container, extras.variables)


def _check_configs(training: TrainingInput, roles: tuple[Role, ...], found: Findings, *, has_container: bool) -> None:
    for name in ROLE_NAMES:
        config, at = config_of(training, name), (TRAINING_INPUT, f"{name}Config")
        is_tpu = any(role.name == name and role.is_tpu for role in roles)
        _check_container_fields(config, at, training, found, has_container=has_container)
        _check_tpu_version(config, at, found, is_tpu=is_tpu and has_container)


def _check_container_fields(
    config: ReplicaConfig, at: Loc, training: TrainingInput, found: Findings, *, has_container: bool
) -> None:
    if config.image_uri is not None and at[-1] != "masterConfig":
        check_image(config.image_uri, (*at, "imageUri"), found)
        if not has_container:
            found.add_text((*at, "imageUri"), f"needs {found.path(_IMAGE_AT)} as well", "imageUri in masterConfig")
    for field, value in (("containerCommand", config.container_command), ("containerArgs", config.container_args)):
        if not value:
            continue
        if training.args:
            problem = f"does not go with {found.path((TRAINING_INPUT, 'args'))}: only one of them can be set"
            found.add_text((*at, field), problem, "containerArgs in each role's config, and no args")
        elif not has_container:
            found.add_text((*at, field), f"is for a container: {found.path(_IMAGE_AT)} is not given", "use args")


def _check_tpu_version(config: ReplicaConfig, at: Loc, found: Findings, *, is_tpu: bool) -> None:
    """It told the service which TensorFlow the TPU must speak to; today the container on the TPU's host has it."""
    version = config.tpu_tf_version
    if version is None:
        return
    if not is_tpu:
        found.add_text((*at, "tpuTfVersion"), "is for a TPU worker that runs a container", "leave it out")
    elif version not in PAST_RUNTIMES:
        problem = f"must be one of {', '.join(PAST_RUNTIMES)}, not {given(version)}"
        found.add((*at, "tpuTfVersion"), problem, list(PAST_RUNTIMES)[-1])
