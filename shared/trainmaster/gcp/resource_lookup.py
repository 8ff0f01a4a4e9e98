"""The Resources port on IAM, Secret Manager and Artifact Registry.

Client libraries are not used: these are three small reads, and the libraries (three of about 10 MB)
are not needed elsewhere. They would lengthen the cold start of every function that accepts jobs.
"""

from __future__ import annotations

import re
from typing import Final

from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError

from trainmaster.core.intake.registry_images import DIGEST, RegistryImage
from trainmaster.errors import TemporaryError
from trainmaster.gcp.errors import google_errors
from trainmaster.gcp.rest_api import Json, RestApi
from trainmaster.ports import Existence

TIMEOUT_S: Final = 10.0
GOOGLE_ACCOUNTS: Final = "https://iam.googleapis.com"
GOOGLE_SECRETS: Final = "https://secretmanager.googleapis.com"
GOOGLE_IMAGES: Final = "https://artifactregistry.googleapis.com"
_ENABLED: Final = "ENABLED"
_OWNERS: Final = (
    re.compile(r"[^@]+@(?P<project>[a-z0-9-]+)\.iam\.gserviceaccount\.com"),
    re.compile(r"(?P<project>[0-9]+)-compute@developer\.gserviceaccount\.com"),
    re.compile(r"(?P<project>[a-z0-9-]+)@appspot\.gserviceaccount\.com"),
)
"""Forms of e-mail addresses that contain the project of their service account, or its number."""
_SECRET: Final = re.compile(r"(?:projects/([^/]+)/)?(?:secrets/)?([^/]+)(?:/versions/([^/]+))?")
"""Project, secret and version, as the agent reads them (`trainmaster.agent.setup.secret_values`).
"""


class GoogleResources:
    """Looks up what a job names: service accounts, secrets and images. Thread-safe.

    Adapter of `trainmaster.ports.Resources`. What the installation may not see is UNKNOWN. All
    methods raise TemporaryError for transient errors. Empty endpoints mean Google's.
    """

    def __init__(
        self, project: str, accounts: str = "", secrets: str = "", images: str = ""
    ) -> None:
        self._project = project
        self._accounts = RestApi(GOOGLE_ACCOUNTS, accounts, TIMEOUT_S)
        self._secrets = RestApi(GOOGLE_SECRETS, secrets, TIMEOUT_S)
        self._images = RestApi(GOOGLE_IMAGES, images, TIMEOUT_S)

    def service_account(self, email: str) -> Existence:
        """Look up a service account by its e-mail address; a disabled one is MISSING.

        The path contains the project, because IAM answers 403 for a missing account in
        `projects/-`. Source: IAM, `projects.serviceAccounts.get`.
        """
        project = _project_of(email)
        if project is None:
            return Existence.UNKNOWN
        path = f"/v1/projects/{project}/serviceAccounts/{email}"
        existence, account = _look_up(self._accounts, path)
        return Existence.MISSING if account.get("disabled") else existence

    def secret_version(self, name: str) -> Existence:
        """Look up a secret version: `SECRET`, `SECRET/versions/VERSION`, or a full name.

        The default version is the latest one. MISSING also if the version is disabled or destroyed.
        """
        match = _SECRET.fullmatch(name)
        if match is None:
            return Existence.MISSING
        owner, secret, number = match.groups()
        path = (
            f"/v1/projects/{owner or self._project}/secrets/{secret}/versions/{number or 'latest'}"
        )
        existence, version = _look_up(self._secrets, path)
        return Existence.MISSING if version.get("state", _ENABLED) != _ENABLED else existence

    def image(self, image: RegistryImage) -> tuple[Existence, str]:
        """Look up an image by its tag or digest. Return its digest, too, `sha256:…`; empty: it is
        not known.
        """
        existence, resource = _look_up(self._images, f"/v1/{image.resource}")
        digest = image.digest or str(resource.get("version", "")).rpartition("/")[2]
        if not DIGEST.fullmatch(digest):
            digest = ""
        return existence, digest

    def close(self) -> None:
        for api in (self._accounts, self._secrets, self._images):
            api.close()


def _project_of(email: str) -> str | None:
    """Return the project of a service account, or its number; None if the address has none."""
    for owner in _OWNERS:
        match = owner.fullmatch(email)
        if match is not None:
            return match["project"]
    return None


def _look_up(api: RestApi, path: str) -> tuple[Existence, Json]:
    """Return whether the resource exists, and the resource itself if it does.

    A permission that is missing, and an API that is not enabled, are both 403.
    """
    try:
        with google_errors(f"look up {path}"):
            resource = api.find(path)
    except (exceptions.Forbidden, exceptions.Unauthorized):
        return Existence.UNKNOWN, {}
    except GoogleAuthError as error:
        raise TemporaryError(str(error)) from None
    if resource is None:
        return Existence.MISSING, {}
    return Existence.EXISTS, resource
