"""Volumes of a pod: only emptyDir is supported.

The advice for another kind depends on what the container uses the volume for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trainmaster.jobspec.manifests.findings import Findings
from trainmaster.jobspec.manifests.pod_fields import ContainerFields

CREDENTIALS: Final = ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE")
"""Variables that name a file with a key or the configuration of an account of Google Cloud."""
_KEY: Final = (
    "leave out the volume, its mount and {variable}: programs have the credentials of the VM's"
    " service account, which serviceAccountName names"
)
_INSTEAD: Final = {
    "secret": (
        'annotations: {trainmaster: "secrets: {MY_SECRET: my-secret}"}, and read it from the'
        " variable"
    ),
    "configMap": "put its files into the image, or into Cloud Storage (gs://…)",
    "downwardAPI": "read RANK, WORLD_SIZE and CLOUD_ML_JOB_ID",
    "projected": "leave it out: programs have the credentials of the VM's service account",
}
_STORAGE: Final = "read from and write to Cloud Storage (gs://…)"


def check_volumes(
    volumes: Sequence[Mapping[str, Any]], container: ContainerFields, path: str, findings: Findings
) -> None:
    """Refuse each volume of another kind. `path`: that of the list of volumes in the manifest."""
    for index, volume in enumerate(volumes):
        kind = " ".join(name for name in volume if name != "name")
        if kind == "emptyDir":
            continue
        problem = f"is a volume of the kind {kind or 'none'}; only emptyDir is supported"
        instead = _INSTEAD.get(kind, _STORAGE)
        variable = _credentials_in(volume.get("name"), container)
        if variable:
            instead = _KEY.format(variable=variable)
        findings.refuse(f"{path}[{index}]", problem, instead)


def _credentials_in(volume: object, container: ContainerFields) -> str | None:
    """Return the variable that names a file of credentials in this volume; None: there is none."""
    folders = [
        str(mount.get("mountPath")).rstrip("/")
        for mount in container.volume_mounts
        if mount.get("name") == volume
    ]
    values = {str(item.get("name")): str(item.get("value")) for item in container.env}
    for name in CREDENTIALS:
        value = values.get(name, "")
        if any(value.startswith(f"{folder}/") for folder in folders):
            return name
    return None
