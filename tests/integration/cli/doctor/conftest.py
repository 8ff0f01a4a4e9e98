"""A project before the installation, in which `trainmaster doctor` finds no fault."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cli.doctor.empty_project import PROJECT, REGION, EmptyProject
from tests.integration.cli.fake_google import FakeGoogle
from trainmaster.cli.doctor.first_day_checks import INSTALLER_PERMISSIONS
from trainmaster.gcp.clients import TOKEN_FILE
from trainmaster.gcp.tools import inspection
from trainmaster.gcp.tools.inspection import Endpoints
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.settings import settings
from trainmaster_emulators.services import iam

EMAIL = "platform@example.com"


def set_gcloud(monkeypatch: pytest.MonkeyPatch, folder: Path, account: str) -> None:
    """Put a gcloud first on PATH that has this active account."""
    program = folder / "bin" / "gcloud"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\necho '{account}'\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")


@pytest.fixture
def project(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[EmptyProject]:
    quotas = [
        {"metric": "CPUS", "usage": 8, "limit": 72},
        {"metric": "SSD_TOTAL_GB", "usage": 0, "limit": 500},
    ]
    google = FakeGoogle(
        {
            "/zones": (200, {"items": [{"name": f"{REGION}-a"}]}),
            f"/regions/{REGION}": (200, {"name": REGION, "quotas": quotas}),
            f"/projects/{PROJECT}": (200, {"quotas": []}),
            "/v1/userinfo": (200, {"email": EMAIL, "email_verified": True}),
            **{
                f"/{runtime.image}": (200, {"name": "image"})
                for runtime in RUNTIMES.values()
                if runtime.image
            },
            "/aggregated/instances": (200, {"items": {}}),
            "/nodes": (200, {}),
            "/queuedResources": (200, {}),
            "/roles": (200, {"roles": []}),
            f"/{PROJECT}:testIamPermissions": (200, {"permissions": list(INSTALLER_PERMISSIONS)}),
        }
    )
    (tmp_path / "token").write_text(iam.OWNER, encoding="utf-8")
    with google.serving() as endpoint:
        monkeypatch.setenv(TOKEN_FILE, str(tmp_path / "token"))
        monkeypatch.setenv("TRAINMASTER_PROJECT", PROJECT)
        monkeypatch.setenv("TRAINMASTER_BUCKET", "bucket")
        monkeypatch.setenv("TRAINMASTER_WORKER_SERVICE_ACCOUNT", "worker")
        endpoints = Endpoints(*[endpoint] * len(Endpoints.__dataclass_fields__))
        monkeypatch.setattr(inspection, "GOOGLE", endpoints)
        monkeypatch.setattr("trainmaster.cli.doctor.inspecting.GOOGLE", endpoints)
        monkeypatch.setenv("TRAINMASTER_IAM_ENDPOINT", endpoint)
        monkeypatch.setenv("TRAINMASTER_IAM_ACCOUNTS_ENDPOINT", endpoint)
        monkeypatch.setenv("TRAINMASTER_IAM_PEOPLE_ENDPOINT", endpoint)
        set_gcloud(monkeypatch, tmp_path, EMAIL)
        settings.cache_clear()
        yield EmptyProject(google, endpoint)
    settings.cache_clear()
