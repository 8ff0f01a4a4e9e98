"""What gcloud's familiar flags mean in a job: each lies over its field of the job file, as it did there.

Source: googlecloudsdk/command_lib/ml_engine/flags.py and what the unmodified gcloud was seen to send.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

from shared.errors import PermanentError

ROLES: Final = {"master": "master", "worker": "worker", "parameter_server": "parameterServer"}


@dataclass(frozen=True, slots=True)
class Flags:
    """As given; None: not given."""

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
    def given(self) -> tuple[str, ...]:
        return tuple(each.name for each in fields(self) if getattr(self, each.name) is not None)


def overlaid(document: Mapping[str, Any], flags: Flags, args: Sequence[str]) -> dict[str, Any]:
    """The job of the file with what the flags say. Raises PermanentError for what no job can be made of."""
    key = "training_input" if "training_input" in document else "trainingInput"
    if "jobSpec" in document and (flags.given or args):
        raise PermanentError("these flags are of AI Platform's format, and the job file is of Vertex AI's")
    if "jobSpec" in document:
        return dict(document)
    if flags.master_image_uri and flags.runtime_version:
        raise PermanentError("Only one of --master-image-uri, --runtime-version can be set.")
    training = {**(document.get(key) or {}), **_plain(flags)}
    for role, prefix in ROLES.items():
        _lay_role(training, flags, role, prefix)
    if args:
        training["args"] = list(args)
    said: dict[str, Any] = {**document, key: training}
    if flags.labels:
        said["labels"] = {**(document.get("labels") or {}), **_pairs(flags.labels, "--labels")}
    return said


def _plain(flags: Flags) -> dict[str, Any]:
    found = {
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
    return {name: value for name, value in found.items() if value is not None}


def _lay_role(training: dict[str, Any], flags: Flags, role: str, prefix: str) -> None:
    machine = getattr(flags, f"{role}_machine_type")
    count = getattr(flags, f"{role}_count", None)
    if machine:
        training[f"{prefix}Type"] = machine
    if count is not None:
        training[f"{prefix}Count"] = str(count)
    config = dict(training.get(f"{prefix}Config") or {})
    if image := getattr(flags, f"{role}_image_uri"):
        config["imageUri"] = image
    if accelerator := getattr(flags, f"{role}_accelerator"):
        option = f"--{role.replace('_', '-')}-accelerator"
        pairs = {"count": "1", **_pairs(accelerator, option)}
        if set(pairs) != {"type", "count"}:
            raise PermanentError(f"{option}: give type=nvidia-tesla-t4,count=1, not {accelerator!r}")
        config["acceleratorConfig"] = {"type": pairs["type"].upper().replace("-", "_"), "count": pairs["count"]}
    if config:
        training[f"{prefix}Config"] = config


def _pairs(text: str, option: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    if not all(equals and name for name, equals, _ in pairs):
        raise PermanentError(f"{option}: give KEY=VALUE,KEY=VALUE, not {text!r}")
    return {name.strip(): value.strip() for name, _, value in pairs}
