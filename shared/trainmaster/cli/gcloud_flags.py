"""The options of `gcloud ai-platform jobs submit training`: each overrides its field of the job file.

Source: googlecloudsdk/command_lib/ml_engine/flags.py, and the requests that an unmodified gcloud sends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from trainmaster.errors import PermanentError

ROLES: Final = {"master": "master", "worker": "worker", "parameter_server": "parameterServer"}


@dataclass(frozen=True, slots=True)
class Flags:
    """Values of the options; None if not given. Names are those of the options, with underscores."""

    module_name: str | None = None
    region: str | None = None
    job_dir: str | None = None
    scale_tier: str | None = None
    runtime_version: str | None = None
    python_version: str | None = None
    service_account: str | None = None
    network: str | None = None
    use_chief_in_tf_config: bool | None = None
    max_running_time: str | None = None
    master_machine_type: str | None = None
    master_accelerator: str | None = None
    master_image_uri: str | None = None
    worker_machine_type: str | None = None
    worker_count: int | None = None
    worker_accelerator: str | None = None
    worker_image_uri: str | None = None
    parameter_server_machine_type: str | None = None
    parameter_server_count: int | None = None
    parameter_server_accelerator: str | None = None
    parameter_server_image_uri: str | None = None
    labels: str | None = None

    @property
    def names_given(self) -> tuple[str, ...]:
        """Names of the options that were given."""
        return tuple(field.name for field in fields(self) if getattr(self, field.name) is not None)


def apply_flags(document: Mapping[str, Any], flags: Flags, args: Sequence[str]) -> dict[str, Any]:
    """Return the job file with the options applied, and `args` as the program's arguments.

    Raises PermanentError for options that contradict each other or the format of the job file.
    """
    key = "training_input" if "training_input" in document else "trainingInput"
    if "jobSpec" in document and (flags.names_given or args):
        raise PermanentError(
            "gcloud's options and program arguments need a job file in AI Platform's format; this one is in Vertex AI's"
        )
    if "jobSpec" in document:
        return dict(document)
    if flags.master_image_uri and flags.runtime_version:
        raise PermanentError("Only one of --master-image-uri, --runtime-version can be set.")
    training = {**(document.get(key) or {}), **_job_fields(flags)}
    for role, prefix in ROLES.items():
        _apply_role_flags(training, flags, role, prefix)
    if args:
        training["args"] = list(args)
    result: dict[str, Any] = {**document, key: training}
    if flags.labels:
        result["labels"] = {**(document.get("labels") or {}), **_parse_pairs(flags.labels, "--labels")}
    return result


def _job_fields(flags: Flags) -> dict[str, Any]:
    """Return the fields of options that concern the whole job."""
    values = {
        "pythonModule": flags.module_name,
        "region": flags.region,
        "jobDir": flags.job_dir,
        "scaleTier": flags.scale_tier and flags.scale_tier.upper().replace("-", "_"),
        "runtimeVersion": flags.runtime_version,
        "pythonVersion": flags.python_version,
        "serviceAccount": flags.service_account,
        "network": flags.network,
        "useChiefInTfConfig": flags.use_chief_in_tf_config,
        "scheduling": {"maxRunningTime": flags.max_running_time} if flags.max_running_time else None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _apply_role_flags(training: dict[str, Any], flags: Flags, role: str, prefix: str) -> None:
    """Set the fields of one role in place."""
    machine_type = getattr(flags, f"{role}_machine_type")
    count = getattr(flags, f"{role}_count", None)
    if machine_type:
        training[f"{prefix}Type"] = machine_type
    if count is not None:
        training[f"{prefix}Count"] = str(count)
    config = dict(training.get(f"{prefix}Config") or {})
    if image := getattr(flags, f"{role}_image_uri"):
        config["imageUri"] = image
    if accelerator := getattr(flags, f"{role}_accelerator"):
        option = f"--{role.replace('_', '-')}-accelerator"
        pairs = {"count": "1", **_parse_pairs(accelerator, option)}
        if set(pairs) != {"type", "count"}:
            raise PermanentError(f"{option}: {accelerator!r} is not valid. Example: type=nvidia-tesla-t4,count=1")
        config["acceleratorConfig"] = {"type": pairs["type"].upper().replace("-", "_"), "count": pairs["count"]}
    if config:
        training[f"{prefix}Config"] = config


def _parse_pairs(text: str, option: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(equals and name for name, equals, _ in pairs):
        raise PermanentError(f"{option}: {text!r} is not valid. The format is KEY=VALUE,KEY=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}
