"""gcloud's options for a training job: each sets its field of the job file, in either format.

Source: googlecloudsdk/command_lib/ml_engine/flags.py, command_lib/ai, and the requests that an
unmodified gcloud sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trainmaster.errors import PermanentError
from trainmaster.jobspec.job_document import JOB_ID_NAMES, with_field
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, JOB_SPEC, detect_kind
from trainmaster.wiring.installation import PROJECT, known_variables

_KMS_PARTS: Final = ("kms_project", "kms_location", "kms_keyring", "kms_key")
_KMS_COLLECTIONS: Final = ("projects", "locations", "keyRings", "cryptoKeys")


@dataclass(frozen=True, slots=True)
class Flag:
    """An option, and the fields that it sets: paths of canonical names.

    Without fields it has no effect.
    """

    help: str
    """Empty: the option is hidden, because it has no effect or requests what is not supported."""
    metavar: str | None = None
    training: str | None = None
    """Field of a job of AI Platform."""
    vertex: str | None = None
    """Field of a job of Vertex AI."""
    panel: str = "Program"
    type: Any = str
    parse: Callable[[str], object] = str
    """Turns the option's text into the field's value."""

    @property
    def has_field(self) -> bool:
        return bool(self.training or self.vertex)


def _accelerator(text: str) -> dict[str, str]:
    """Return an AcceleratorConfig, from `type=nvidia-tesla-t4,count=1`. Raises ValueError."""
    pairs = {"count": "1", **_parse_pairs(text)}
    if set(pairs) != {"type", "count"}:
        raise ValueError("example: type=nvidia-tesla-t4,count=1")
    return {"type": _enum(pairs["type"]), "count": pairs["count"]}


def _enum(text: str) -> str:
    """Return the API's name of a value that gcloud writes in lower case with hyphens."""
    return text.upper().replace("-", "_")


def parse_list(text: str) -> list[str]:
    """Split at commas, or at another delimiter: `^:^a,b:c`. Source: `gcloud topic escaping`."""
    delimiter = ","
    if text.startswith("^") and "^" in text[1:]:
        delimiter, _, text = text[1:].partition("^")
    return [part for part in text.split(delimiter) if part]


def _parse_time(text: str) -> str:
    """Return a time in minutes or hours in seconds, as job files have it: `15m` is `900s`.

    Any other text is returned as it is: the check of the job file refuses it.
    """
    seconds_per_unit = {"m": 60, "h": 3600}.get(text[-1:])
    number = text[:-1]
    if seconds_per_unit is None or not number.isdecimal():
        return text
    return f"{int(number) * seconds_per_unit}s"


def _parse_pairs(text: str) -> dict[str, str]:
    """Return the pairs of `KEY=VALUE,KEY=VALUE`. Raises ValueError."""
    pairs = [part.partition("=") for part in parse_list(text)]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        raise ValueError("the format is KEY=VALUE,KEY=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _worker_pool(text: str) -> dict[str, object]:
    """Return a WorkerPoolSpec, from pairs such as `machine-type=n1-standard-4,replica-count=2`.

    Raises ValueError. Source: googlecloudsdk/command_lib/ai/custom_jobs/custom_jobs_util.py.
    """
    pairs = _parse_pairs(text)
    unknown = pairs.keys() - {*_POOL_KEYS, *_POOL_IMAGE_KEYS}
    if unknown:
        raise ValueError(
            f"{', '.join(sorted(unknown))} is unknown; known are {', '.join(_POOL_KEYS)}"
        )
    builds = pairs.keys() & _POOL_IMAGE_KEYS
    if builds:
        raise ValueError(
            f"{', '.join(sorted(builds))} would build an image: build it, and give"
            " container-image-uri"
        )
    image = pairs.get("container-image-uri")
    executor = pairs.get("executor-image-uri")
    module = pairs.get("python-module")
    if image and (executor or module):
        raise ValueError("give either container-image-uri or executor-image-uri with python-module")
    machine: dict[str, object] = {"machineType": pairs.get("machine-type")}
    gpu = pairs.get("accelerator-type")
    if gpu:
        machine["acceleratorType"] = _enum(gpu)
        machine["acceleratorCount"] = _whole_number(pairs, "accelerator-count")
    pool: dict[str, object] = {
        "machineSpec": machine,
        "replicaCount": _whole_number(pairs, "replica-count"),
    }
    if image:
        pool["containerSpec"] = {"imageUri": image}
    else:
        pool["pythonPackageSpec"] = {"executorImageUri": executor, "pythonModule": module}
    return pool


def _whole_number(pairs: Mapping[str, str], key: str) -> int:
    text = pairs.get(key, "1")
    if not text.isdecimal():
        raise ValueError(f"{key} must be a whole number")
    return int(text)


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
            f"trainingInput.{role}Type",
            panel=_VMS,
        )
    }
    if role != "master":  # of which there is one
        flags[f"{option}_count"] = Flag(
            "Number of VMs.", "N", f"trainingInput.{role}Count", panel=_VMS, type=int
        )
    flags[f"{option}_accelerator"] = Flag(
        "type=nvidia-tesla-t4,count=1.",
        "GPU",
        f"{config}.acceleratorConfig",
        panel=_VMS,
        parse=_accelerator,
    )
    flags[f"{option}_image_uri"] = Flag(
        "Container image to run instead of Python packages.",
        "IMAGE",
        f"{config}.imageUri",
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
_POOL_KEYS: Final = (
    "machine-type",
    "replica-count",
    "accelerator-type",
    "accelerator-count",
    "container-image-uri",
    "executor-image-uri",
    "python-module",
)
_POOL_IMAGE_KEYS: Final = {
    "local-package-path",
    "script",
    "requirements",
    "extra-packages",
    "extra-dirs",
    "output-image-uri",
}
"""With these, gcloud builds an image on the user's machine."""
_POOL: Final = (
    "A worker pool: machine-type=…,replica-count=…,container-image-uri=… May be repeated."
)
_ARGS: Final = f"{_POOLS}.containerSpec|pythonPackageSpec.args"
FLAGS: Final[Mapping[str, Flag]] = {
    "module_name": Flag("Module to run: python -m MODULE.", "MODULE", "trainingInput.pythonModule"),
    "runtime_version": Flag(
        "Preinstalled framework: 2.21, pytorch-2.9.", "VERSION", "trainingInput.runtimeVersion"
    ),
    "python_version": Flag(
        "Ignored: the runtime version decides.", "VERSION", "trainingInput.pythonVersion"
    ),
    "job_dir": Flag("gs:// folder for the job's output.", "URI", "trainingInput.jobDir"),
    "use_chief_in_tf_config": Flag(_CHIEF, None, "trainingInput.useChiefInTfConfig", type=bool),
    "tpu_tf_version": Flag(
        "Ignored: the TPU decides.", "VERSION", "trainingInput.workerConfig.tpuTfVersion"
    ),
    "enable_web_access": Flag(
        _SHELL, None, "trainingInput.enableWebAccess", "jobSpec.enableWebAccess", type=bool
    ),
    "region": Flag(
        "Region of the VMs.", "REGION", "trainingInput.region", "trainmaster.region", _PLACE
    ),
    "service_account": Flag(
        "Service account of the VMs.",
        "EMAIL",
        "trainingInput.serviceAccount",
        "jobSpec.serviceAccount",
        _PLACE,
    ),
    "network": Flag(
        "projects/NUMBER/global/networks/NAME.",
        "NETWORK",
        "trainingInput.network",
        "jobSpec.network",
        _PLACE,
    ),
    "labels": Flag(
        "KEY=VALUE, separated by commas.", "LABELS", "labels", "labels", _PLACE, parse=_parse_pairs
    ),
    "max_running_time": Flag(
        "Cancel the job after this time: 7200s.",
        "TIME",
        "trainingInput.scheduling.maxRunningTime",
        "jobSpec.scheduling.timeout",
        _PLACE,
    ),
    "keep": Flag(
        "Take machines that an earlier job has kept, and keep this job's after its end: 15m.",
        "TIME",
        "trainmaster.keepMachines",
        "trainmaster.keepMachines",
        _PLACE,
        parse=_parse_time,
    ),
    "kms_key": Flag(
        "Cloud KMS key of the boot disks: its full name, or with the options below.",
        "KEY",
        "trainingInput.encryptionConfig.kmsKeyName",
        "encryptionSpec.kmsKeyName",
        _PLACE,
    ),
    "kms_keyring": Flag("Key ring of --kms-key.", "RING", panel=_PLACE),
    "kms_location": Flag("Location of --kms-key.", "LOCATION", panel=_PLACE),
    "kms_project": Flag("Project of --kms-key; default: --project.", "PROJECT", panel=_PLACE),
    "scale_tier": Flag(_TIERS, "TIER", "trainingInput.scaleTier", panel=_VMS, parse=_enum),
    **_role_flags("master", "master", "the master"),
    **_role_flags("worker", "worker", "the workers"),
    **_role_flags("parameter_server", "parameterServer", "the parameter servers"),
    "worker_pool_spec": Flag(
        _POOL, "POOL", None, "jobSpec.workerPoolSpecs", _VERTEX, list[str], parse=_worker_pool
    ),
    "python_package_uris": Flag(
        "Packages of pools with a python-module.",
        "URIS",
        None,
        f"{_POOLS}.pythonPackageSpec.packageUris",
        _VERTEX,
        parse=parse_list,
    ),
    "display_name": Flag("Name of the job for people.", "NAME", None, "displayName", _VERTEX),
    "max_trial_count": Flag("Number of trials.", "N", None, "maxTrialCount", _VERTEX, int),
    "parallel_trial_count": Flag(
        "Trials at the same time.", "N", None, "parallelTrialCount", _VERTEX, int
    ),
    "algorithm": Flag(
        "random-search or grid-search.", "NAME", None, "studySpec.algorithm", _VERTEX, parse=_enum
    ),
    "enable_dashboard_access": Flag("", None, None, "jobSpec.enableDashboardAccess", _VERTEX, bool),
    "persistent_resource_id": Flag("", "ID", None, "jobSpec.persistentResourceId", _VERTEX),
    "command": Flag(
        "Command of every container.",
        "LIST",
        None,
        f"{_POOLS}.containerSpec.command",
        _VERTEX,
        parse=parse_list,
    ),
    "args": Flag(
        "Arguments, as after --.", "LIST", "trainingInput.args", _ARGS, _VERTEX, parse=parse_list
    ),
    "verbosity": Flag("", "LEVEL"),
    "quiet": Flag("", type=bool),
    "user_output_enabled": Flag("", type=bool),
    "log_http": Flag("", type=bool),
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
    result = kind.wrapped(document) if values else dict(document)
    for name, path in paths.items():
        if path is not None:
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
    is_whole = "/" in key
    has_parts = bool(set(parts) - {"kms_project"})
    if has_parts and not is_whole:
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
    is_parsed = isinstance(value, list) and flag.type is str  # arguments after --
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
