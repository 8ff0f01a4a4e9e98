"""Settings of an installation, read from the environment by pydantic-settings.

A wrong value stops the start of a function, and the error names the setting. docs/settings.md is generated from here.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Annotated, Final

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from shared.presentation.price import Price, read_price

PREFIX: Final = "TRAINMASTER_"


class Addressing(StrEnum):
    """How the replicas of a job reach each other."""

    DNS = "dns"  # NAME.ZONE.c.PROJECT.internal:2222, known before the VM exists
    EMULATOR = "emulator"  # a free loopback port per VM name, from the Compute emulator


class Settings(BaseSettings):
    """Each setting has its unit in its name, and its reason in its description."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True)

    project: str = Field(min_length=6, max_length=30, description="Project id.")
    bucket: str = Field(default="", description="Bucket of job files, packages and job directories.")
    compute_endpoint: str = Field(default="", description="Compute Engine endpoint; empty means Google's own.")
    tpu: bool = Field(
        default=False,
        description="Whether Cloud TPU is used: its API is enabled, and the functions' account has access. Jobs with "
        "TPUs are rejected otherwise.",
    )
    tpu_endpoint: str = Field(default="", description="Cloud TPU endpoint; empty means Google's own.")
    logging_endpoint: str = Field(default="", description="Cloud Logging endpoint; empty means Google's own.")
    addressing: Addressing = Field(
        default=Addressing.DNS,
        description="How replicas find each other: by the names of their VMs in Google's DNS, or, on the local stack, "
        "by addresses from the Compute emulator.",
    )
    worker_service_account: str = Field(
        default="",
        description="E-mail of the VMs' service account, whose identity tokens their events must carry. Empty: the "
        "sender of events is not checked, which is for tests only.",
    )
    identity_keys: str = Field(
        default="https://www.googleapis.com/oauth2/v1/certs",
        description="Address of the public keys with which the VMs' identity tokens are verified.",
    )
    network: str = Field(default="global/networks/default", description="Network of the VMs.")
    subnetwork: str = Field(
        default="",
        description="Subnetwork of the VMs, in which {region} stands for the job's region. Empty: the network's own "
        "subnetwork in that region.",
    )
    limits: Annotated[dict[str, int], NoDecode] = Field(
        default_factory=dict,
        description="The most that all jobs together may use, such as vcpus=450,nvidia-tesla-t4=8. Jobs that do not "
        "fit wait in QUEUED. Empty: no limits but Google's quotas.",
    )
    iam_endpoint: str = Field(
        default="https://cloudresourcemanager.googleapis.com",
        description="Where the API looks up the permissions of its callers.",
    )
    iam_accounts_endpoint: str = Field(
        default="https://iam.googleapis.com",
        description="Where the API looks up which service accounts its callers may act as.",
    )
    iam_people_endpoint: str = Field(
        default="https://openidconnect.googleapis.com",
        description="Where the API looks up the name of a caller who creates or cancels a job (OpenID Connect's "
        "UserInfo). Empty: names are not recorded.",
    )
    jobs_per_minute: int = Field(
        default=60,
        ge=0,
        description="Most jobs created through the API within a minute; 0: no limit. Source: quota of AI Platform "
        "Training.",
    )
    requests_per_minute: int = Field(
        default=300,
        ge=0,
        description="Most other requests to the API within a minute, counted by each instance; 0: no limit. Source: "
        "quota of AI Platform Training.",
    )
    ml_unit_price: Annotated[Price | None, NoDecode] = Field(
        default=None,
        description="Price of one ML unit, such as `0.49 USD`. If set, the command line shows what a job costs. There "
        "is no default, because prices differ by region and contract.",
    )
    operation_wait_s: float = Field(
        default=20.0,
        ge=0,
        le=120,
        description="Longest wait for one Compute operation within a function. Most inserts finish within 20 s, and "
        "several waits in a row still fit an ack deadline of 120 s.",
    )

    @field_validator("ml_unit_price", mode="before")
    @classmethod
    def _parse_price(cls, value: object) -> object:
        """Parse `0.49 USD`."""
        return read_price(value) if isinstance(value, str) and value else value or None

    @field_validator("limits", mode="before")
    @classmethod
    def _parse_limits(cls, value: object) -> object:
        """Parse `vcpus=450,gpus=8`. Names are not checked: new accelerators come every year."""
        if not isinstance(value, str):
            return value
        limits: dict[str, int] = {}
        for item in filter(None, (part.strip() for part in value.split(","))):
            name, _, count = item.partition("=")
            if not name or not count.isdecimal() or name in limits:
                raise ValueError(f"{item!r} is not RESOURCE=NUMBER, once each, such as vcpus=450")
            limits[name] = int(count)
        return limits


def read_settings() -> Settings:
    """Read the environment. Raises pydantic's ValidationError."""
    return Settings()  # type: ignore[call-arg]  # the environment gives the required ones


@cache
def settings() -> Settings:
    """Return the settings as they were at the first call."""
    return read_settings()
