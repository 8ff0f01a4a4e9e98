"""Fixtures: terraform's plan of infra/, and the archives of the functions."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, Final

import pytest

from infra import stage
from tests.infra import bare_provider, provider_schema
from tests.infra.provider_schema import Block
from tests.support.terraform import terraform_program
from trainmaster_emulators.checkout import ROOT

INFRA: Final = ROOT / "infra"
REQUIRED: Final = {
    "project": "my-project",
    "region": "us-central1",
    "notify": "platform@example.com",
}
TIMEOUT_S: Final = 300
VIEWERS: Final = "group:viewers@example.com"
OPERATORS: Final = "group:platform@example.com"
SSH_USERS: Final = "group:ssh@example.com"
WORKER_REGIONS: Final = {"europe-west4": "10.1.0.0/20", "us-east1": "10.2.0.0/20"}
FINANCE: Final = {
    "service_account": "finance@my-project.iam.gserviceaccount.com",
    "ranges": {"us-east1": "10.140.0.0/20", "europe-west4": "10.141.0.0/20"},
}
RESEARCH: Final = {
    "service_account": "research@my-project.iam.gserviceaccount.com",
    "ranges": {"us-east1": "10.142.0.0/20"},
    "tpu": True,
}
LANDING_NETWORK: Final = "projects/host/global/networks/shared"
LANDING_SUBNETWORK: Final = "projects/host/regions/{region}/subnetworks/training-{region}"
LANDING_KEY: Final = "projects/keys/locations/us-central1/keyRings/ml/cryptoKeys/trainmaster"
GCSFUSE: Final = b"\x7fELF"
BOOT_IMAGE: Final = "projects/my-project/global/images/family/trainmaster-debian-12"


@dataclass(frozen=True, slots=True)
class PlannedResource:
    """A resource that the plan creates."""

    """What `terraform plan` would create."""
    address: str
    type: str
    values: dict[str, Any]
    """Values from the files. Values that are known only after an apply are missing."""


class Plan:
    def __init__(self, document: dict[str, Any]) -> None:
        self.resources = tuple(_resources(document["planned_values"]["root_module"]))
        self.document = document
        """As `terraform show -json` prints it."""
        self.outputs: dict[str, Any] = document["planned_values"].get("outputs", {})

    def of(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the resources of one type: address → values."""
        return {
            resource.address: resource.values
            for resource in self.resources
            if resource.type == kind
        }

    def warnings(self) -> list[str]:
        """Return the messages of the checks that fail."""
        return [
            problem["message"]
            for check in self.document.get("checks", [])
            for instance in check.get("instances", [])
            for problem in instance.get("problems", [])
        ]

    def environments(self) -> dict[str, dict[str, str]]:
        """Return function → its environment variables."""
        functions = self.of("google_cloudfunctions2_function").values()
        return {
            function["name"]: function["service_config"][0]["environment_variables"]
            for function in functions
        }


Terraform = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def schema() -> dict[str, Block]:
    """Return the schema of Google's provider. `make images` creates the file."""
    return provider_schema.load(ROOT / ".images" / "google-provider" / "schema.json")


@pytest.fixture(scope="session")
def terraform(
    schema: dict[str, Block], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Terraform]:
    """Return a function that runs terraform on an initialized copy of infra/.

    The provider has only the types that infra/ uses: terraform reads the schema of every type in
    each command.
    """
    program = terraform_program()
    folder = tmp_path_factory.mktemp("terraform") / "infra"
    shutil.copytree(
        INFRA,
        folder,
        ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*", "*.tfvars", "__pycache__"),
    )
    used = {
        name
        for path in INFRA.rglob("*.tf")
        for name in re.findall(r'"(google_\w+)"', path.read_text("utf-8"))
    }
    types = {
        name: block
        for name, block in schema.items()
        if name.removeprefix("data.") in {*used, "provider"}
    }
    with bare_provider.attached(types) as reattached:
        environment = {
            **os.environ,
            **reattached,
            "TF_CLI_CONFIG_FILE": os.devnull,
            "TF_IN_AUTOMATION": "1",
        }
        environment["GOGC"] = "off"  # the plan with default values then takes 440 MB

        def run(*words: str, within: Path = folder) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [program, *words],
                cwd=within,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=TIMEOUT_S,
            )

        done = run("init", "-input=false", "-backend=false", "-no-color")
        assert done.returncode == 0, done.stderr
        yield run


@pytest.fixture(scope="session")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The archives of an installation, by name."""
    return stage.stage(tmp_path_factory.mktemp("stage"))


def extract(archive: Path, folder: Path) -> None:
    """Extract a function's archive, with the compiled modules that the checkout has of the same
    sources.

    The archives have most sources in common: those are links to files that are extracted once.
    """
    kept = archive.parent / "extracted"
    with zipfile.ZipFile(archive) as file:
        for entry in file.infolist():
            path = folder / entry.filename
            path.parent.mkdir(parents=True, exist_ok=True)
            source = kept / f"{entry.CRC:08x}" / entry.filename
            if not source.exists():
                file.extract(entry, kept / f"{entry.CRC:08x}")
                _copy_compiled(source, Path(entry.filename))
            os.link(source, path)
            compiled, copy = (Path(cache_from_source(str(module))) for module in (source, path))
            if compiled.exists():
                copy.parent.mkdir(exist_ok=True)
                os.link(compiled, copy)


def _copy_compiled(module: Path, name: Path) -> None:
    """Copy the compiled module of the checkout next to an extracted one of the same source."""
    source = stage.PACKAGES.get(name.parts[0], ROOT) / name
    compiled, copy = (Path(cache_from_source(str(path))) for path in (source, module))
    if name.suffix == ".py" and compiled.exists() and source.read_bytes() == module.read_bytes():
        # Python compares it with that in the compiled module.
        os.utime(module, ns=(0, source.stat().st_mtime_ns))
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(compiled, copy)


@pytest.fixture(scope="session")
def planned(
    terraform: Terraform, archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Plan]:
    """Return a function that plans an apply in an empty project with these variables:
    `planned(budget=100)`.
    """
    folder = next(iter(archives.values())).parent

    def plan(**variables: object) -> Plan:
        file = tmp_path_factory.mktemp("plan") / "plan"
        values = {**REQUIRED, "stage": str(folder), **variables}
        given = [
            f"-var={name}={value if isinstance(value, str) else json.dumps(value)}"
            for name, value in values.items()
        ]
        done = terraform(
            "plan", "-input=false", "-no-color", "-refresh=false", f"-out={file}", *given
        )
        assert done.returncode == 0, done.stderr
        shown = terraform("show", "-json", str(file))
        assert shown.returncode == 0, shown.stderr
        return Plan(json.loads(shown.stdout))

    return plan


@pytest.fixture(scope="session")
def full_variables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """Return the variables with everything that is off by default, and no default value that a
    variable can change.
    """
    gcsfuse = tmp_path_factory.mktemp("gcsfuse") / "gcsfuse"
    gcsfuse.write_bytes(GCSFUSE)
    return {
        "gcsfuse": {"file": str(gcsfuse), "sha256": hashlib.sha256(GCSFUSE).hexdigest()},
        "nat": False,
        "keep_data": False,
        "budget": 100,
        "billing_account": "012345-6789AB-CDEF01",
        "clients": ["group:ml@example.com", "user:a@example.com"],
        "api_users": ["group:ml@example.com"],
        "api_viewers": ["group:all@example.com"],
        "price_writers": ["group:finance@example.com"],
        "limits": {"vcpus": 450, "nvidia-tesla-t4": 8, "team:vision": 2},
        "labels": {"cost-centre": "ml-4711"},
        "allowed_resources": [
            "secret=projects/p/secrets/key",
            "network=projects/1/global/networks/ml*",
        ],
        "worker_regions": WORKER_REGIONS,
        "walled_accounts": {"finance": FINANCE, "research": RESEARCH},
        "metrics": "300",
        "package_mirror": True,
        "boot_images": {"debian-12": BOOT_IMAGE},
        "console": True,
        "console_viewers": [VIEWERS, OPERATORS],
        "console_operators": [OPERATORS],
        "ssh_users": [SSH_USERS],
        "api_access": "allUsers",
        "notification_webhooks": [
            {"secret": "slack-webhook", "console": "https://console.example.com"},
            {"secret": "chat", "name": "chat", "filter": 'attributes.state = "FAILED"'},
        ],
        "mail_failed_jobs": True,
        "worker_read_buckets": ["my-data", "open.data"],
        "worker_write_buckets": ["my-models", "my-data"],
        "worker_registries": ["projects/other/locations/europe-west4/repositories/training"],
        "worker_project_roles": {
            "my-data": ["roles/bigquery.dataViewer", "roles/bigquery.jobUser"],
            "my-project": ["roles/bigquery.jobUser"],
        },
    }


@pytest.fixture(scope="session")
def full_plan(planned: Callable[..., Plan], full_variables: dict[str, object]) -> Plan:
    """Return the plan with all that can be switched on."""
    return planned(**full_variables)


@pytest.fixture(scope="session")
def reduced_plan(planned: Callable[..., Plan]) -> Plan:
    """Return the plan without anything that can be left out, in a landing zone, with other values
    of some variables.
    """
    return planned(
        tpu=False,
        metrics="off",
        schemas=False,
        ssh_users=[SSH_USERS],
        ssh_sudo=True,
        api_access="none",
        console_viewers=[VIEWERS],
        network={"network": LANDING_NETWORK, "subnetwork": LANDING_SUBNETWORK},
        worker_regions={"us-central1": "", "europe-west4": ""},
        kms_key=LANDING_KEY,
        point_in_time_recovery=True,
    )


@pytest.fixture(scope="session")
def plan(planned: Callable[..., Plan]) -> Plan:
    """Return the plan with only the required variables set."""
    return planned()


def _resources(module: dict[str, Any]) -> Iterator[PlannedResource]:
    for resource in module.get("resources", []):
        if resource["mode"] == "managed":
            yield PlannedResource(resource["address"], resource["type"], resource["values"])
    for inner in module.get("child_modules", []):
        yield from _resources(inner)
