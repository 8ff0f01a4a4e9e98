"""What differs between installations, from the environment. A wrong value stops the start with its name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from shared.presentation.price import Price, read_price

PREFIX: Final = "TRAINMASTER_"


class Addressing(StrEnum):
    """How replicas of a job reach each other."""

    DNS = "dns"  # NAME.ZONE.c.PROJECT.internal:2222, known before the VM exists
    EMULATOR = "emulator"  # a free loopback port per VM name, from the Compute emulator


class Settings(BaseModel):
    """Each with the unit in its name and the reason beside its default."""

    model_config = ConfigDict(frozen=True)

    project: str = Field(min_length=6, max_length=30, description="Project id.")
    bucket: str = Field(default="", description="Bucket of job files, packages and job directories.")
    compute_endpoint: str = Field(default="", description="Compute Engine endpoint; empty means Google's own.")
    tpu: bool = Field(
        default=False,
        description="Whether Cloud TPU is used: its API is enabled and the functions' account may use it. A job with "
        "TPUs is refused otherwise.",
    )
    tpu_endpoint: str = Field(default="", description="Cloud TPU endpoint; empty means Google's own.")
    logging_endpoint: str = Field(default="", description="Cloud Logging endpoint; empty means Google's own.")
    addressing: Addressing = Field(
        default=Addressing.DNS,
        description="How replicas find each other: by their VMs' names in Google's DNS, or, on the local stack, where "
        "the Compute emulator says.",
    )
    worker_service_account: str = Field(
        default="",
        description="E-mail of the VMs' account, whose identity tokens their events must carry. Empty: none, and then "
        "nobody asks who sends an event: for tests only.",
    )
    identity_keys: str = Field(
        default="https://www.googleapis.com/oauth2/v1/certs",
        description="Where the keys are published with which VMs' identity tokens are signed.",
    )
    network: str = Field(default="global/networks/default", description="The VMs' network.")
    subnetwork: str = Field(
        default="",
        description="The VMs' subnetwork, in which {region} stands for the job's; empty: the network's own there.",
    )
    limits: dict[str, int] = Field(
        default_factory=dict,
        description="The most that all jobs together may use, such as vcpus=450,nvidia-tesla-t4=8; those that do not "
        "fit wait in QUEUED. Empty: none but Google's own quotas.",
    )
    iam_endpoint: str = Field(
        default="https://cloudresourcemanager.googleapis.com", description="Where the API asks what its callers may."
    )
    iam_accounts_endpoint: str = Field(
        default="https://iam.googleapis.com", description="Where the API asks whom its callers may act as."
    )
    iam_people_endpoint: str = Field(
        default="https://openidconnect.googleapis.com",
        description="Where the API asks who creates or cancels a job (OpenID Connect's UserInfo); empty: it does not.",
    )
    jobs_per_minute: int = Field(
        default=60,
        ge=0,
        description="Most jobs created through the API within a minute; 0: no limit. Source: the service's own quota.",
    )
    requests_per_minute: int = Field(
        default=300,
        ge=0,
        description="Most requests to the API within a minute that create no job, as each instance counts them; "
        "0: no limit. Source: the service's own quota.",
    )
    ml_unit_price: Price | None = Field(
        default=None,
        description="What one ML unit costs, such as `0.49 USD`: the command line then shows what a job costs. No "
        "default: prices differ by region and contract, and nobody is told a wrong one.",
    )
    operation_wait_s: float = Field(
        default=20.0,
        ge=0,
        le=120,
        description="Longest wait for one Compute operation within a function. 20 s sees most inserts through, and "
        "several in a row still fit an ack deadline of 120 s.",
    )

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """What is named there, and the defaults of the rest. Raises ValidationError."""
        names = {name: f"{PREFIX}{name.upper()}" for name in cls.model_fields}
        return cls.model_validate({name: environment[key] for name, key in names.items() if key in environment})

    @field_validator("ml_unit_price", mode="before")
    @classmethod
    def _price(cls, value: object) -> object:
        """`0.49 USD` → a price."""
        if not isinstance(value, str) or not value:
            return value or None
        return read_price(value)

    @field_validator("limits", mode="before")
    @classmethod
    def _limits(cls, value: object) -> object:
        """`vcpus=450,gpus=8` → a mapping. Names are not checked: new accelerators come every year."""
        if not isinstance(value, str):
            return value
        found: dict[str, int] = {}
        for item in filter(None, (part.strip() for part in value.split(","))):
            name, _, count = item.partition("=")
            if not name or not count.isdecimal() or name in found:
                raise ValueError(f"{item!r} is not RESOURCE=NUMBER, once each, such as vcpus=450")
            found[name] = int(count)
        return found


@cache
def settings() -> Settings:
    return Settings.of(os.environ)
