"""The permissions of each service account on objects, as infra/iam.tf grants them.

`services.http_gate` refuses all other calls.

`tests/infra/test_storage_access.py` compares the grants with infra/. Sources of the rules: "IAM
permissions for JSON methods" of Cloud Storage, and "Conditions" of IAM: a permission on the bucket
is checked with the bucket's name. A condition on object names therefore has the same result for all
calls on the bucket itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, unquote, urlsplit

WORKER: Final = "worker"
"""The account of the VMs. Every other account belongs to the function of the same name."""
GET_BUCKET: Final = "storage.buckets.get"
GET: Final = "storage.objects.get"
LIST: Final = "storage.objects.list"
CREATE: Final = "storage.objects.create"
UPDATE: Final = "storage.objects.update"
DELETE: Final = "storage.objects.delete"
ROLES: Final = {
    "roles/storage.objectViewer": frozenset({GET, LIST}),
    "roles/storage.objectUser": frozenset({GET, LIST, CREATE, UPDATE, DELETE}),
    "trainmasterObjectLister": frozenset({LIST}),
    "trainmasterResourceViewer": frozenset({GET_BUCKET}),
}
"""Role → its permissions, as far as they matter here."""

_OBJECT: Final = re.compile(
    r"(?:/download)?/storage/v1/b/(?P<bucket>[^/]+)/o(?:/(?P<name>[^/]+)(?P<rest>/.*)?)?"
)
"""Path of a call about the objects of a bucket, or about one; `rest` has what follows its name."""
_BUCKET: Final = re.compile(r"/storage/v1/b/(?P<bucket>[^/]+)")
_UPLOAD: Final = re.compile(r"(?:/resumable)?/upload/storage/v1/b/(?P<bucket>[^/]+)/o")
_OBJECT_METHODS: Final = {"GET": GET, "HEAD": GET, "DELETE": DELETE, "PATCH": UPDATE, "PUT": UPDATE}
_NAME_IN_BODY: Final = re.compile(rb'"name"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True, slots=True)
class StorageGrant:
    """A role of an account on a bucket."""

    account: str
    role: str
    bucket: str
    """`this` or `stage`, as infra/ names the resource."""
    only: tuple[str, ...] = ()
    """Folders to which the condition limits the grant. Empty: no such condition."""
    excluded: tuple[str, ...] = ()
    """Folders that the condition excludes."""

    def allows(self, permission: str, name: str) -> bool:
        """Return whether the grant has the permission for this object.

        `name` empty: for the bucket.
        """
        if permission not in ROLES[self.role]:
            return False
        if self.only and not name.startswith(self.only):
            return False
        return not name.startswith(self.excluded)


GRANTS: Final = (
    StorageGrant("upload", "roles/storage.objectUser", "this", only=("jobs/",)),
    StorageGrant("upload", "roles/storage.objectViewer", "this", excluded=("jobs/",)),
    StorageGrant("submit", "roles/storage.objectViewer", "this", excluded=("jobs/",)),
    StorageGrant("api", "roles/storage.objectViewer", "this", excluded=("jobs/",)),
    StorageGrant("upload", "trainmasterObjectLister", "this"),
    StorageGrant("upload", "trainmasterResourceViewer", "this"),
    StorageGrant("upload", "trainmasterResourceViewer", "stage"),
    StorageGrant("submit", "trainmasterResourceViewer", "this"),
    StorageGrant("submit", "trainmasterResourceViewer", "stage"),
    StorageGrant("api", "trainmasterResourceViewer", "this"),
    StorageGrant("api", "trainmasterResourceViewer", "stage"),
    StorageGrant("console", "roles/storage.objectViewer", "this", only=("prices/",)),
    StorageGrant("console_operator", "roles/storage.objectViewer", "this", only=("prices/",)),
    StorageGrant(WORKER, "roles/storage.objectViewer", "this", excluded=("jobs/",)),
    StorageGrant(
        WORKER, "roles/storage.objectViewer", "stage", only=("agent/", "algorithms/", "tools/")
    ),
    StorageGrant(
        WORKER,
        "roles/storage.objectUser",
        "this",
        excluded=("jobs/", "packages/", "agent/", "prices/"),
    ),
)


@dataclass(frozen=True, slots=True)
class Access:
    """A permission that a call needs. `name` empty: the permission is checked on the bucket."""

    permission: str
    bucket: str
    name: str = ""


def required_access(method: str, target: str, body: bytes) -> Iterator[Access]:
    """Yield the permissions that a call of the JSON API needs; none for calls that this module does
    not know.

    `target` is path and query. The name of an uploaded object is in the query, or in the metadata
    in the body.
    """
    url = urlsplit(target)
    upload = _UPLOAD.fullmatch(url.path)
    if upload:
        if method == "POST":
            name = parse_qs(url.query).get("name", [""])[0] or _name_in(body)
            if name:
                yield Access(CREATE, upload["bucket"], name)
        return
    bucket = _BUCKET.fullmatch(url.path)
    if bucket and method == "GET":
        yield Access(GET_BUCKET, bucket["bucket"])
        return
    match = _OBJECT.fullmatch(url.path)
    if match:
        yield from _object_access(
            method, match["bucket"], unquote(match["name"] or ""), match["rest"] or ""
        )


def _object_access(method: str, bucket: str, name: str, rest: str) -> Iterator[Access]:
    if not name:
        if method == "GET":
            yield Access(LIST, bucket)
        return
    if not rest:
        yield Access(_OBJECT_METHODS.get(method, UPDATE), bucket, name)
    elif rest == "/compose":
        yield Access(CREATE, bucket, name)
    else:
        copy = re.fullmatch(r"/(?:rewriteTo|copyTo)/b/([^/]+)/o/([^/]+)", rest)
        if copy:
            yield Access(GET, bucket, name)
            yield Access(CREATE, copy[1], unquote(copy[2]))


def _name_in(body: bytes) -> str:
    match = _NAME_IN_BODY.search(body)
    return str(json.loads(match[1])) if match else ""


@dataclass(frozen=True, slots=True)
class StorageAccess:
    """The permissions of one account."""

    account: str
    bucket: str
    """Name of the bucket `this` of infra/."""
    stage_bucket: str

    def allows(self, access: Access) -> bool:
        # The proxy of the VMs sends this call in place of TensorFlow's getStorageLayout, which
        # needs LIST.
        if self.account == WORKER and access.permission == GET_BUCKET:
            access = Access(LIST, access.bucket)
        resources = {self.bucket: "this", self.stage_bucket: "stage"}
        return any(
            grant.account == self.account
            and grant.bucket == resources.get(access.bucket)
            and grant.allows(access.permission, access.name)
            for grant in GRANTS
        )

    def refusal(self, denied: Access) -> str:
        """Return the message of Google's error. Source of its text: Cloud Storage's JSON API."""
        return (
            f"{self.account} does not have {denied.permission} access to the Google Cloud Storage"
            f" {'object' if denied.name else 'bucket'}. Permission '{denied.permission}' denied on"
            " resource (or it may not exist)."
        )

    def first_missing(self, method: str, target: str, body: bytes) -> Access | None:
        """Return the first permission that the call needs and the account does not have."""
        for access in required_access(method, target, body):
            if not self.allows(access):
                return access
        return None

    def hides_missing(self, method: str, target: str) -> Access | None:
        """Return the permission to list objects if the account lacks it and the call names an
        object; else None.

        Without that permission, Cloud Storage answers 403 instead of 404 for an object that does
        not exist.
        """
        for access in required_access(method, target, body=b""):
            lister = Access(LIST, access.bucket)
            if access.name and not self.allows(lister):
                return lister
        return None
