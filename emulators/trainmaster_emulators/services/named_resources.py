"""An emulator of the resources that jobs name: service accounts, secrets, and images in Artifact
Registry.

    IAM                  serviceAccounts: create, get, list, delete
    Secret Manager       secrets: create, get, getIamPolicy, setIamPolicy
                         versions: add, get, access, disable, enable, destroy
    Artifact Registry    tags: get, and create in place of a push

Only the stack's own project exists. For any other project every call is 403, as Google answers a
caller without permission there. The service account of the VMs exists from the start. Everything
else is kept in memory and is gone when the stack ends.
"""

from __future__ import annotations

import re
from threading import Lock
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from trainmaster_emulators.rest.api_errors import StatusError

Answer = tuple[int, dict[str, Any]]

_PROJECT: Final = re.compile(r"/v1/projects/(?P<project>[^/:]+)/(?P<rest>.+)")
_ACCOUNT: Final = re.compile(r"serviceAccounts/(?P<email>[^/:]+)")
_SECRET: Final = re.compile(r"secrets/(?P<secret>[^/:]+)")
_POLICY: Final = re.compile(r"secrets/(?P<secret>[^/:]+):(?P<verb>[gs]etIamPolicy)")
_NEW_VERSION: Final = re.compile(r"secrets/(?P<secret>[^/:]+):addVersion")
_VERSION: Final = re.compile(
    r"secrets/(?P<secret>[^/:]+)/versions/(?P<version>[^/:]+)(?::(?P<verb>\w+))?"
)
_TAGS: Final = re.compile(r"locations/[^/]+/repositories/[^/]+/packages/[^/]+/tags")
_TAG: Final = re.compile(
    r"(?P<tags>locations/[^/]+/repositories/[^/]+/packages/[^/]+/tags)/(?P<tag>[^/:]+)"
)
_STATES: Final = {"enable": "ENABLED", "disable": "DISABLED", "destroy": "DESTROYED"}
_DESTROYED: Final = "DESTROYED"
_LATEST: Final = "latest"


class NamedResources:
    """The resources of one project. Thread-safe."""

    def __init__(self, project: str) -> None:
        self._project = project
        self._lock = Lock()
        self._accounts: dict[str, dict[str, Any]] = {}
        self._secrets: dict[str, list[dict[str, Any]]] = {}
        self._payloads: dict[str, str] = {}
        self._policies: dict[str, dict[str, Any]] = {}
        self._tags: dict[str, dict[str, Any]] = {}
        self._create_account({"accountId": "trainmaster-worker"})

    def answer(self, method: str, target: str, body: dict[str, Any]) -> Answer | None:
        """Return status and body. None: the path is not one of this emulator.

        `target` is a path with its query; `body` the JSON of the request, empty if there is none.
        """
        url = urlsplit(target)
        match = _PROJECT.fullmatch(url.path)
        if match is None:
            return None
        project = match["project"]
        path = match["rest"]
        if not path.startswith(("serviceAccounts", "secrets", "locations/")):
            return None
        if path.endswith(":testIamPermissions"):
            return None
        if project not in (self._project, "-"):
            message = f"Permission denied on resource project {project}."
            return error_answer("PERMISSION_DENIED", message)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        with self._lock:
            return self._route(method, path, query, body)

    def _route(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        if path.startswith("serviceAccounts"):
            return self._account(method, path, body)
        if path.startswith("secrets"):
            return self._secret(method, path, query, body)
        return self._tag(method, path, query, body)

    def _account(self, method: str, path: str, body: dict[str, Any]) -> Answer:
        if path == "serviceAccounts":
            if method == "GET":
                return 200, {"accounts": list(self._accounts.values())}
            return self._create_account(body)
        match = _ACCOUNT.fullmatch(path)
        email = unquote(match["email"]) if match else ""
        if email not in self._accounts:
            return error_answer("NOT_FOUND", f"Unknown service account: {email}.")
        if method == "DELETE":
            del self._accounts[email]
            return 200, {}
        return 200, self._accounts[email]

    def _create_account(self, body: dict[str, Any]) -> Answer:
        email = f"{body.get('accountId')}@{self._project}.iam.gserviceaccount.com"
        if email in self._accounts:
            return error_answer(
                "ALREADY_EXISTS", f"Service account {body.get('accountId')} already exists."
            )
        name = f"projects/{self._project}/serviceAccounts/{email}"
        self._accounts[email] = {
            "name": name,
            "projectId": self._project,
            "email": email,
            "uniqueId": str(10**20 + len(self._accounts)),
            **body.get("serviceAccount", {}),
        }
        return 200, self._accounts[email]

    def _secret(
        self, method: str, path: str, query: dict[str, str], body: dict[str, Any]
    ) -> Answer:
        if path == "secrets" and method == "POST":
            return self._create_secret(query.get("secretId", ""))
        patterns = (_NEW_VERSION, _VERSION, _POLICY, _SECRET)
        match = next(filter(None, (pattern.fullmatch(path) for pattern in patterns)), None)
        if match is None or match["secret"] not in self._secrets:
            return error_answer("NOT_FOUND", f"Secret [{self._name(path)}] not found.")
        if match.re is _POLICY:
            return self._policy(match["secret"], match["verb"], body)
        if match.re is _SECRET:
            return 200, {"name": self._name(path)}
        versions = self._secrets[match["secret"]]
        if path.endswith(":addVersion"):
            name = self._name(f"secrets/{match['secret']}/versions/{len(versions) + 1}")
            self._payloads[name] = str(body["payload"]["data"])
            versions.append({"name": name, "state": "ENABLED"})
            return 200, versions[-1]
        return self._version(versions, match["version"], match["verb"], path)

    def _create_secret(self, name: str) -> Answer:
        if name in self._secrets:
            return error_answer("ALREADY_EXISTS", f"Secret [{name}] already exists.")
        self._secrets[name] = []
        return 200, {"name": f"projects/{self._project}/secrets/{name}"}

    def _policy(self, secret: str, verb: str, body: dict[str, Any]) -> Answer:
        """Answer a call about a policy.

        The etag is constant, because the emulator detects no concurrent changes.
        """
        if verb == "setIamPolicy":
            self._policies[secret] = {**body.get("policy", {}), "etag": "ACAB"}
        return 200, self._policies.get(secret, {"etag": "ACAB"})

    def _version(
        self, versions: list[dict[str, Any]], number: str, verb: str | None, path: str
    ) -> Answer:
        """Answer a call about a version.

        `latest` is the newest one that is not destroyed, as in Secret Manager.
        """
        if number == _LATEST:
            newest_first = reversed(versions)
            matches = [version for version in newest_first if version["state"] != _DESTROYED]
        else:
            matches = [version for version in versions if version["name"].endswith(f"/{number}")]
        if not matches:
            return error_answer("NOT_FOUND", f"Secret Version [{self._name(path)}] not found.")
        version = matches[0]
        if verb in _STATES:
            version["state"] = _STATES[str(verb)]
        elif verb == "access":
            if version["state"] != "ENABLED":
                return error_answer(
                    "FAILED_PRECONDITION",
                    f"Secret Version [{version['name']}] is not enabled.",
                )
            return 200, {
                "name": version["name"],
                "payload": {"data": self._payloads[version["name"]]},
            }
        return 200, version

    def _tag(self, method: str, path: str, query: dict[str, str], body: dict[str, Any]) -> Answer:
        if method == "POST" and _TAGS.fullmatch(path) and query.get("tagId"):
            name = f"{path}/{query['tagId']}"
            self._tags[name] = {"name": self._name(name), "version": body.get("version", "")}
            return 200, self._tags[name]
        if method == "GET" and _TAG.fullmatch(path) and path in self._tags:
            return 200, self._tags[path]
        return error_answer("NOT_FOUND", "Requested entity was not found.")

    def _name(self, path: str) -> str:
        return f"projects/{self._project}/{path}"


def error_answer(status: str, message: str) -> Answer:
    error = StatusError(status, message)
    return error.code, error.body()
