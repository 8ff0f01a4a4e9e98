"""gcloud's options for a training job: each sets its field of the job file, in either format.

Source: googlecloudsdk/command_lib/ml_engine/flags.py, command_lib/ai, and the requests that an
unmodified gcloud sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final

from trainmaster.cli.gcloud_values import (
    parse_accelerator,
    parse_enum,
    parse_list,
    parse_pairs,
    parse_time,
    parse_worker_pool,
)
from trainmaster.errors import PermanentError
from trainmaster.jobspec.job_document import JOB_ID_NAMES, with_field
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
from trainmaster.jobspec.reading.field_names import JOB_SPEC
from trainmaster.wiring.installation import PROJECT, known_variables

# A key of Cloud KMS is named by these options, and in its full name by these collections.
_KMS_PARTS: Final = ("kms_project", "kms_location", "kms_keyring", "kms_key")
_KMS_COLLECTIONS: Final = ("projects", "locations", "keyRings", "cryptoKeys")


@dataclass(frozen=True, slots=True)
class Flag:
    """An option, and the fields that it sets.

    A field is a path of canonical names, such as `trainingInput.region`. In a path, `*` stands for
    every item of a list, and `a|b` for those of the two fields that the item has. Without fields
    the option has no effect.
    """

    help: str
    """Empty: the option is hidden, because it has no effect or requests what is not supported."""
    metavar: str | None = None
    _: KW_ONLY
    training: str | None = None
    """Field of a job of AI Platform."""
    vertex: str | None = None
    """Field of a job of Vertex AI."""
    panel: str = "Program"
    """Heading of the help below which the option is listed."""
    type: Any = str
    """Type of the option's value, as typer reads it."""
    parse: Callable[[str], object] = str
    """Turns the option's text into the field's value."""

    @property
    def has_field(self) -> bool:
        return bool(self.training or self.vertex)


def _role_flags(option: str, role: str, words: str) -> dict[str, Flag]:
    """Return the options of one role of a TrainingInput.

    `option`: beginning of the options' names; `role`: that of the fields' names; `words`: the
    role's replicas in help texts.
    """
    config = f"trainingInput.{role}Config"
    flags = {
        f"{option}_machine_type": Flag(
            f"Compute Engine machine type of {words}, or AI Platform's own name of one.",
            "TYPE",
            training=f"trainingInput.{role}Type",
            panel=_VMS,
        )
    }
    if role != "master":  # of which there is one
        flags[f"{option}_count"] = Flag(
            "Number of VMs.", "N", training=f"trainingInput.{role}Count", panel=_VMS, type=int
        )
    flags[f"{option}_accelerator"] = Flag(
        "type=nvidia-tesla-t4,count=1.",
        "GPU",
        training=f"{config}.acceleratorConfig",
        panel=_VMS,
        parse=parse_accelerator,
    )
    flags[f"{option}_image_uri"] = Flag(
        "Container image to run instead of Python packages.",
        "IMAGE",
        training=f"{config}.imageUri",
        panel=_VMS,
    )
    return flags


_VMS: Final = "VMs"
_PLACE: Final = "Location and identity"
_VERTEX: Final = "Vertex AI"
_CHIEF: Final = "Call the primary `chief` instead of `master` in TF_CONFIG. Only for containers."
_TIERS: Final = "basic, standard-1, premium-1, basic-gpu, basic-tpu, or custom."
_SHELL: Final = "An interactive shell in the browser."
_POOLS: Final = "jobSpec.workerPoolSpecs.*"
_POOL: Final = (
    "A worker pool: machine-type=…,replica-count=…,container-image-uri=… May be repeated."
)
_ARGS: Final = f"{_POOLS}.containerSpec|pythonPackageSpec.args"
FLAGS: Final[Mapping[str, Flag]] = {
    "module_name": Flag(
        "Module to run: python -m MODULE.", "MODULE", training="trainingInput.pythonModule"
    ),
    "runtime_version": Flag(
        "Preinstalled framework: 2.21, pytorch-2.9.",
        "VERSION",
        training="trainingInput.runtimeVersion",
    ),
    "python_version": Flag(
        "Ignored: the runtime version decides.", "VERSION", training="trainingInput.pythonVersion"
    ),
    "job_dir": Flag("gs:// folder for the job's output.", "URI", training="trainingInput.jobDir"),
    "use_chief_in_tf_config": Flag(_CHIEF, training="trainingInput.useChiefInTfConfig", type=bool),
    "tpu_tf_version": Flag(
        "Ignored: the TPU decides.", "VERSION", training="trainingInput.workerConfig.tpuTfVersion"
    ),
    "enable_web_access": Flag(
        _SHELL,
        training="trainingInput.enableWebAccess",
        vertex="jobSpec.enableWebAccess",
        type=bool,
    ),
    "region": Flag(
        "Region of the VMs.",
        "REGION",
        training="trainingInput.region",
        vertex="trainmaster.region",
        panel=_PLACE,
    ),
    "service_account": Flag(
        "Service account of the VMs.",
        "EMAIL",
        training="trainingInput.serviceAccount",
        vertex="jobSpec.serviceAccount",
        panel=_PLACE,
    ),
    "network": Flag(
        "projects/NUMBER/global/networks/NAME.",
        "NETWORK",
        training="trainingInput.network",
        vertex="jobSpec.network",
        panel=_PLACE,
    ),
    "labels": Flag(
        "KEY=VALUE, separated by commas.",
        "LABELS",
        training="labels",
        vertex="labels",
        panel=_PLACE,
        parse=parse_pairs,
    ),
    "max_running_time": Flag(
        "Cancel the job after this time: 90m, 2h, 1d.",
        "TIME",
        training="trainingInput.scheduling.maxRunningTime",
        vertex="jobSpec.scheduling.timeout",
        panel=_PLACE,
        parse=parse_time,
    ),
    "keep": Flag(
        "Take machines that an earlier job has kept, and keep this job's after its end: 15m.",
        "TIME",
        training="trainmaster.keepMachines",
        vertex="trainmaster.keepMachines",
        panel=_PLACE,
        parse=parse_time,
    ),
    "kms_key": Flag(
        "Cloud KMS key of the boot disks: its full name, or with the options below.",
        "KEY",
        training="trainingInput.encryptionConfig.kmsKeyName",
        vertex="encryptionSpec.kmsKeyName",
        panel=_PLACE,
    ),
    "kms_keyring": Flag("Key ring of --kms-key.", "RING", panel=_PLACE),
    "kms_location": Flag("Location of --kms-key.", "LOCATION", panel=_PLACE),
    "kms_project": Flag("Project of --kms-key; default: --project.", "PROJECT", panel=_PLACE),
    "scale_tier": Flag(
        _TIERS, "TIER", training="trainingInput.scaleTier", panel=_VMS, parse=parse_enum
    ),
    **_role_flags("master", "master", "the master"),
    **_role_flags("worker", "worker", "the workers"),
    **_role_flags("parameter_server", "parameterServer", "the parameter servers"),
    "worker_pool_spec": Flag(
        _POOL,
        "POOL",
        vertex="jobSpec.workerPoolSpecs",
        panel=_VERTEX,
        type=list[str],
        parse=parse_worker_pool,
    ),
    "python_package_uris": Flag(
        "Packages of pools with a python-module.",
        "URIS",
        vertex=f"{_POOLS}.pythonPackageSpec.packageUris",
        panel=_VERTEX,
        parse=parse_list,
    ),
    "display_name": Flag(
        "Name of the job for people.", "NAME", vertex="displayName", panel=_VERTEX
    ),
    "max_trial_count": Flag(
        "Number of trials.", "N", vertex="maxTrialCount", panel=_VERTEX, type=int
    ),
    "parallel_trial_count": Flag(
        "Trials at the same time.", "N", vertex="parallelTrialCount", panel=_VERTEX, type=int
    ),
    "algorithm": Flag(
        "random-search or grid-search.",
        "NAME",
        vertex="studySpec.algorithm",
        panel=_VERTEX,
        parse=parse_enum,
    ),
    "enable_dashboard_access": Flag(
        help="", vertex="jobSpec.enableDashboardAccess", panel=_VERTEX, type=bool
    ),
    "persistent_resource_id": Flag(
        help="", metavar="ID", vertex="jobSpec.persistentResourceId", panel=_VERTEX
    ),
    "command": Flag(
        "Command of every container.",
        "LIST",
        vertex=f"{_POOLS}.containerSpec.command",
        panel=_VERTEX,
        parse=parse_list,
    ),
    "args": Flag(
        "Arguments, as after --.",
        "LIST",
        training="trainingInput.args",
        vertex=_ARGS,
        panel=_VERTEX,
        parse=parse_list,
    ),
    "verbosity": Flag(help="", metavar="LEVEL"),
    "quiet": Flag(help="", type=bool),
    "user_output_enabled": Flag(help="", type=bool),
    "log_http": Flag(help="", type=bool),
}


def apply_flags(
    document: Mapping[str, Any], given: Mapping[str, Any], args: Sequence[str]
) -> dict[str, Any]:
    """Return the job file with the options applied, and `args` as the program's arguments.

    `given`: values of FLAGS; None: the option is not given. Raises PermanentError for options that
    contradict each other, or that the format of the job file has no field for.
    """
    values = {
        name: value for name, value in _with_whole_key(given).items() if value not in (None, [])
    }
    if "worker_pool_spec" in values and not document.keys() - JOB_ID_NAMES:
        document = {JOB_SPEC: {}, **document}
    kind = detect_kind(document)
    if args:
        values["args"] = list(args)
    if values.get("master_image_uri") and values.get("runtime_version"):
        raise PermanentError("Only one of --master-image-uri, --runtime-version can be set.")
    paths = {
        name: FLAGS[name].training if kind is AI_PLATFORM else FLAGS[name].vertex for name in values
    }
    unknown = [
        _option(name) for name, path in paths.items() if path is None and FLAGS[name].has_field
    ]
    if unknown:
        raise PermanentError(
            f"{', '.join(unknown)}: a {kind.title} has no field for it. Leave it out"
        )
    # In a wrapped document, the fields of a job are in a field of their own, as the paths say.
    result = kind.wrapped(document) if values else dict(document)
    for name, path in paths.items():
        if path is not None:
            # The path has the name of a CustomJob's body; a tuning job has another one.
            steps = path.replace(JOB_SPEC, kind.sent_body).split(".")
            result = with_field(result, steps, _parse(name, values[name]))
    return result


def _with_whole_key(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the full name of the KMS key.

    Raises PermanentError if a part of it is missing.
    """
    parts = {
        "kms_project": known_variables().get(PROJECT),
        **{name: given[name] for name in _KMS_PARTS if given.get(name)},
    }
    others = {name: value for name, value in given.items() if name not in _KMS_PARTS}
    key = parts.get("kms_key") or ""
    is_full_name = "/" in key
    has_parts = bool(set(parts) - {"kms_project"})  # the project has a default
    if has_parts and not is_full_name:
        missing = [_option(name) for name in _KMS_PARTS if not parts.get(name)]
        if missing:
            raise PermanentError(
                f"--kms-key: encryption key not fully specified. Give {', '.join(missing)} as well"
            )
        key = "/".join(
            f"{kind}/{parts[name]}" for kind, name in zip(_KMS_COLLECTIONS, _KMS_PARTS, strict=True)
        )
    return {**others, "kms_key": key or None}


def _parse(name: str, value: object) -> object:
    """Return the value of the field that an option sets. Raises PermanentError."""
    flag = FLAGS[name]
    is_parsed = isinstance(value, list) and flag.type is str  # the arguments after `--`
    if isinstance(value, bool) or is_parsed:
        return value
    try:
        if isinstance(value, list):
            return [flag.parse(item) for item in value]
        return flag.parse(str(value))
    except ValueError as error:
        raise PermanentError(f"{_option(name)}: {value!r} is not valid: {error}") from None


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
