"""The configuration of a local stack, and what it takes from the shell that starts it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, field_validator

from trainmaster.settings import Settings, read_settings, variable_of
from trainmaster_emulators import checkout
from trainmaster_emulators.realism.call_access import INFRA

SETTINGS_OF_SHELL: Final = (
    "allowed_resources",
    "jobs_per_minute",
    "limits",
    "messages_per_minute",
    "ml_unit_price",
    "package_index",
    "regions",
    "requests_per_minute",
)
"""Settings that a stack takes from the shell that starts it. The stack chooses the others itself: a
shell may have those of an installation on Google Cloud.
"""
SETTINGS: Final = frozenset(map(variable_of, Settings.model_fields))
"""Variables that a stack's file may set. All others belong to the user: PATH, BROWSER, proxies."""
EMULATORS_VARIABLE: Final = "TRAINMASTER_EMULATORS"
FUNCTIONS: Final = (
    "upload",
    "submit",
    "vm_ready",
    "replica_exit",
    "maintenance",
    "provision",
    "tune",
    "sweep",
)
"""Functions of the control plane that Pub/Sub delivers to."""
_CACHE: Final = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
IMAGES: Final = (
    _CACHE / "trainmaster" / "images" if checkout.IS_INSTALLED else checkout.ROOT / ".images"
)
"""Folder of the runtime images.

An installed package has it in the user's cache, which outlives an upgrade.
"""


class StackModel(BaseModel):
    """Base of what is stored about a stack."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class StackConfig(StackModel):
    """The configuration of a stack. The defaults are those of `trainmaster local up`."""

    project: str = "trainmaster-local"
    bucket: str = "trainmaster-local"
    """Name of the bucket of job files, packages and job directories."""
    stage_bucket: str = "trainmaster-local-stage"
    """Name of the bucket from which VMs download the agent."""
    functions_dir: Path = checkout.ROOT / "functions"
    settings: dict[str, str] = {}
    """More settings of the functions; see docs/settings.md."""
    functions: tuple[str, ...] = FUNCTIONS
    """Functions that Pub/Sub delivers to."""
    public_buckets: dict[str, Path] = {}
    """Bucket name → folder whose files the bucket contains at the start of the stack, in place of a
    public bucket.
    """
    images_dir: Path = IMAGES
    """Python environments that replace VM images; see `runtime_images`."""
    sweep_every_s: float = 60.0
    realistic: bool = False
    """Whether VMs and API are as slow and unreliable as on Google Cloud
    (`trainmaster_emulators.realism`).
    """
    time_scale: float = 1.0
    """With `realistic`: factor of all durations."""
    infra_dir: Path = INFRA
    """With `realistic`: folder with the IAM grants of the functions (grants.csv), and their
    roles.
    """
    metrics: str = "30"
    """Seconds between two reports of a VM to Cloud Monitoring, or `off`.

    Local jobs take minutes at most.
    """
    compute: bool = True
    """Run the Compute emulator, and the googleapis proxy, which only VMs need."""
    emulators: str = Field(default_factory=lambda: os.environ.get(EMULATORS_VARIABLE, ""))
    """Backend of Google's emulators: a BackendKind; empty: the best that this machine has."""
    gcs: bool | None = None
    """Whether VMs can mount gcsfuse; None: find out at the start."""
    control_plane: str = ""
    """`host:port` of a control plane in memory.

    If set, Firestore, Pub/Sub and the functions are not started.
    """
    ready_within_s: float = 180.0

    @field_validator("settings")
    @classmethod
    def _check_settings(cls, given: dict[str, str]) -> dict[str, str]:
        unknown = sorted(given.keys() - SETTINGS)
        if unknown:
            raise ValueError(f"no settings of Trainmaster: {', '.join(unknown)}")
        return given


def settings_of_shell(project: str) -> dict[str, str]:
    """Return the settings that `trainmaster local up` passes on: limits, for example.

    Raises pydantic's ValidationError for a wrong value, which would stop the functions.
    """
    read_settings(project=project)
    names = map(variable_of, SETTINGS_OF_SHELL)
    return {name: os.environ[name] for name in names if name in os.environ}
