"""Settings of an installation, read from the environment.

pydantic checks them: pydantic-settings would double the import's time, which each command and each
start of a function takes. A wrong value stops the start of a function, and the error names the
setting. docs/settings.md is generated from here.
"""

from __future__ import annotations

import os
from enum import StrEnum
from functools import cache
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from trainmaster.core.model.installation import checked
from trainmaster.setting_formats import (
    AccountNetworks,
    AllowedResources,
    BootImages,
    Limits,
    Regions,
    UnitPrice,
)

PREFIX: Final = "TRAINMASTER_"


class Addressing(StrEnum):
    """How the replicas of a job reach each other."""

    DNS = "dns"  # NAME.ZONE.c.PROJECT.internal:2222, known before the VM exists
    EMULATOR = "emulator"  # a free loopback port per VM name, from the Compute emulator


class Settings(BaseModel):
    """Each setting has its unit in its name, and its reason in its description."""

    model_config = ConfigDict(frozen=True)

    project: str = Field(min_length=6, max_length=30, description="Project id.")
    installation: Annotated[str, AfterValidator(checked)] = Field(
        default="",
        description=(
            "Name of one of several installations in the project: 2 to 11 lower-case letters and"
            " digits."
        ),
    )
    bucket: str = Field(
        default="", description="Bucket of job files, packages and job directories."
    )
    agent: str = Field(
        default="",
        pattern=r"^(gs://[^/]+/(.+/)?[0-9a-f]{64}\.zip)?$",
        description=(
            "Address of the agent in Cloud Storage, `gs://BUCKET/agent/SHA256.zip`. VMs download it"
            " and compare its hash with the name. The bucket must not be writable for VMs. Only"
            " `provision` needs it."
        ),
    )
    algorithms: str = Field(
        default="",
        pattern=r"^(gs://[^/]+/(.+/)?[0-9a-f]{64}/[^/]+\.whl)?$",
        description=(
            "Address of the package of the built-in algorithms in Cloud Storage,"
            " `gs://BUCKET/algorithms/SHA256/NAME.whl`. Jobs that run one name it with its hash."
            " The bucket must not be writable for VMs. Empty: such jobs are rejected."
        ),
    )
    gcsfuse: str = Field(
        default="",
        pattern=r"^(gs://[^/]+/(.+/)?[0-9a-f]{64}/gcsfuse)?$",
        description=(
            "Address of the program gcsfuse in Cloud Storage, `gs://BUCKET/tools/SHA256/gcsfuse`."
            " VMs download it and compare its hash with the name. The bucket must not be writable"
            " for VMs. Empty: nothing can be written below `/gcs`, and jobs that need it are"
            " rejected."
        ),
    )
    compute_endpoint: str = Field(
        default="", description="Compute Engine endpoint; empty means Google's own."
    )
    tpu: bool = Field(
        default=False,
        description=(
            "Whether Cloud TPU is used: its API is enabled, and the functions' account has access."
            " Jobs with TPUs are rejected otherwise."
        ),
    )
    tpu_endpoint: str = Field(
        default="", description="Cloud TPU endpoint; empty means Google's own."
    )
    logging_endpoint: str = Field(
        default="", description="Cloud Logging endpoint; empty means Google's own."
    )
    monitoring_endpoint: str = Field(
        default="", description="Cloud Monitoring endpoint; empty means Google's own."
    )
    metrics: str = Field(
        default="60",
        pattern=r"^(off|[1-9][0-9]|[12][0-9]{2}|300)$",
        description=(
            "Seconds between two reports of a VM's CPU, memory, GPU and network use to Cloud"
            " Monitoring, from 10 to 300; `off`: VMs report none. Cloud Monitoring charges for the"
            " points."
        ),
    )
    scheduler_endpoint: str = Field(
        default="",
        description=(
            "Cloud Scheduler endpoint, which only `trainmaster schedule` calls; empty means"
            " Google's own."
        ),
    )
    billing_endpoint: str = Field(
        default="",
        description=(
            "Cloud Billing endpoint, which only `trainmaster prices update` calls; empty means"
            " Google's own."
        ),
    )
    addressing: Addressing = Field(
        default=Addressing.DNS,
        description=(
            "How replicas find each other: by the names of their VMs in Google's DNS, or, on the"
            " local stack, by addresses from the Compute emulator."
        ),
    )
    worker_service_account: str = Field(
        default="",
        description=(
            "E-mail of the VMs' service account, whose identity tokens their events must carry."
            " Empty: the sender of events is not checked, which is for tests only."
        ),
    )
    identity_keys: str = Field(
        default="https://www.googleapis.com/oauth2/v1/certs",
        description="Address of the public keys with which the VMs' identity tokens are verified.",
    )
    network: str = Field(default="global/networks/default", description="Network of the VMs.")
    subnetwork: str = Field(
        default="",
        description=(
            "Subnetwork of the VMs, in which {region} stands for the job's region. Empty: the"
            " network's own subnetwork in that region."
        ),
    )
    account_networks: AccountNetworks = Field(
        default_factory=dict,
        description=(
            "Networks of the VMs of jobs with their own service accounts, such as"
            " finance@my-project.iam.gserviceaccount.com=trainmaster-finance. Their subnetworks are"
            " named NETWORK-REGION. A job that names a network gets that one."
        ),
    )
    allowed_resources: AllowedResources = Field(
        default=(),
        description=(
            "Resources that every job may name, such as"
            " service_account=trainer@my-project.iam.gserviceaccount.com,"
            "secret=projects/my-project/secrets/key."
            " A * at the end stands for any rest. Any other service_account, network, image,"
            " reservation, kms_key or secret requires a submission through the API, by a caller who"
            " may use it."
        ),
    )
    regions: Regions = Field(
        default=(),
        description=(
            "Regions in which the network has a subnetwork for VMs, such as"
            " us-central1,europe-west4. Jobs in other regions are rejected, unless they name a"
            " network of their own. Empty: all regions."
        ),
    )
    serial_port_logging: bool = Field(
        default=False,
        description=(
            "Whether Cloud Logging also gets everything on the VMs' serial consoles. It helps with"
            " VMs whose agent does not start, and costs as much again as the logs of the jobs."
        ),
    )
    ssh: bool = Field(
        default=False,
        description=(
            "Whether VMs accept SSH connections by OS Login, which `trainmaster ssh` uses"
            " ([page](ssh.md)). infra/ sets it together with the firewall rule and the roles, if"
            " `ssh_users` is not empty."
        ),
    )
    package_index: str = Field(
        default="",
        description=(
            "Package index for pip on the VMs, such as a mirror of PyPI in Artifact Registry: "
            "https://REGION-python.pkg.dev/PROJECT/REPOSITORY/simple/. Empty: PyPI."
        ),
    )
    boot_images: BootImages = Field(
        default_factory=dict,
        description=(
            "Boot images of your own in place of Google's: FAMILY is the last part of Google's"
            " image, IMAGE is projects/P/global/images/[family/]NAME. An image that contains the"
            " packages of its runtime starts sooner."
        ),
    )
    notifications: bool | None = Field(
        default=None,
        description=(
            "Whether functions publish each transition of a job to the topic"
            " `trainmaster-job-state`, which costs a message and a write to the database"
            " ([page](notifications.md)). Empty, as on the command line: what the command changes"
            " is published by the sweep, if the installation publishes at all."
        ),
    )
    limits: Limits = Field(
        default_factory=dict,
        description=(
            "The most that all jobs together may use of vcpus, gpus, tpus, disk_gib or a type of"
            " accelerator, such as vcpus=450,nvidia-tesla-t4=8; any other name is an error. Jobs"
            " that do not fit wait in QUEUED. `run_hours` bounds the run time of each job;"
            " `usd_per_hour` counts [list prices](cost.md#a-limit-per-hour). `team:NAME` is the"
            " weight in the queue of the jobs with the label `team=NAME`. `tpus` counts the numbers"
            " in the names of TPU types: TensorCores up to v5p, chips for v5e and v6e. Empty: no"
            " limits but Google's quotas."
        ),
    )
    iam_endpoint: str = Field(
        default="https://cloudresourcemanager.googleapis.com",
        description="Where the API looks up the permissions of its callers.",
    )
    iam_accounts_endpoint: str = Field(
        default="https://iam.googleapis.com",
        description="Where the API looks up which service accounts its callers may act as.",
    )
    iam_tokens_endpoint: str = Field(
        default="https://oauth2.googleapis.com",
        description="Where the API looks up the scopes of its callers' access tokens.",
    )
    iam_people_endpoint: str = Field(
        default="https://openidconnect.googleapis.com",
        description=(
            "Where the API looks up the name of a caller who creates or cancels a job (OpenID"
            " Connect's UserInfo). Empty: names are not recorded."
        ),
    )
    secrets_endpoint: str = Field(
        default="",
        description=(
            "Where the secrets that a job names are looked up when it is submitted, and where VMs"
            " of the local stack read them; empty means Google's Secret Manager."
        ),
    )
    registry_endpoint: str = Field(
        default="",
        description=(
            "Where the container images that a job names are looked up when it is submitted; empty"
            " means Google's Artifact Registry."
        ),
    )
    jobs_per_minute: int = Field(
        default=60,
        ge=0,
        description=(
            "Most jobs created through the API within a minute; 0: no limit. Source: quota of AI"
            " Platform Training."
        ),
    )
    messages_per_minute: int = Field(
        default=60,
        ge=0,
        description=(
            "Most jobs created by uploads and messages within a minute; 0: no limit. Further ones"
            " wait in Pub/Sub, for at most 15 minutes. They do not count in the quota of the API."
        ),
    )
    requests_per_minute: int = Field(
        default=300,
        ge=0,
        description=(
            "Most other requests to the API within a minute, counted by each instance; 0: no limit."
            " Source: quota of AI Platform Training."
        ),
    )
    ml_unit_price: UnitPrice = Field(
        default=None,
        description=(
            "Price of one ML unit, such as `0.49 USD`. If set, the command line shows what a job"
            " costs. There is no default, because prices differ by region and contract."
        ),
    )
    console_address: str = Field(
        default="",
        pattern=r"^(https://[^/ ]+/?|http://(127\.0\.0\.1|localhost):[0-9]+/?)?$",
        description=(
            "Address of a console that others can open, such as https://console.example.com. If"
            " set, `describe` links to it. A console that `trainmaster console` starts is for its"
            " own user only, and needs no setting."
        ),
    )
    console_audience: str = Field(
        default="",
        pattern=r"^(/projects/[0-9]+/\S+)?$",
        description=(
            "Audience of Identity-Aware Proxy's assertions,"
            " /projects/NUMBER/locations/REGION/services/NAME. Only the function `console`"
            " needs it."
        ),
    )
    console_keys: str = Field(
        default="https://www.gstatic.com/iap/verify/public_key",
        description=(
            "Address of the public keys with which Identity-Aware Proxy's assertions are verified."
        ),
    )
    console_acts: bool = Field(
        default=False,
        description=(
            "Whether users of the function `console` may cancel, submit, label and delete jobs."
        ),
    )
    operation_wait_s: float = Field(
        default=20.0,
        ge=0,
        le=120,
        description=(
            "Longest wait for one Compute operation within a function. Most inserts finish within"
            " 20 s, and several waits in a row still fit an ack deadline of 120 s."
        ),
    )

    @property
    def log_project(self) -> str:
        """Project whose logs Google's console shows; empty on the local stack."""
        return "" if self.addressing is Addressing.EMULATOR else self.project


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    return f"{PREFIX}{name.upper()}"


def read_settings(**given: str) -> Settings:
    """Read the environment. `given`: settings that do not come from there.

    Raises pydantic's ValidationError.
    """
    values = {name: os.environ.get(variable_of(name)) for name in Settings.model_fields}
    found = {name: value for name, value in values.items() if value is not None}
    return Settings.model_validate(found | given)


@cache
def settings() -> Settings:
    """Return the settings as they were at the first call."""
    return read_settings()
