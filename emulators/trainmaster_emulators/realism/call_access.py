"""The permissions that calls of Pub/Sub and Firestore need, and those that infra/ grants to an
account.

The grants are read from infra/grants.csv, which `tests/infra/iam_table.py` generates from the .tf
files. Sources of the permissions: "Access control with IAM" of Pub/Sub, and "Security
for server client libraries" of Firestore.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from trainmaster_emulators.checkout import ROOT

INFRA: Final = ROOT / "infra"
TABLE_FILE: Final = "grants.csv"
TABLE: Final = INFRA / TABLE_FILE
"""The table of grants: member, role, resource (`on`) and condition."""
REFUSED: Final = "refused: "
"""Beginning of the line that an emulator prints for each call that it refuses for lack of a
permission.
"""
PUBLISH: Final = "pubsub.topics.publish"
"""Permissions of Pub/Sub and Firestore, as IAM names them; so are the two sets below."""
READ: Final = frozenset({"datastore.entities.get", "datastore.entities.list"})
WRITE: Final = frozenset(
    {"datastore.entities.create", "datastore.entities.update", "datastore.entities.delete"}
)
ROLES: Final = {
    "roles/pubsub.publisher": frozenset({PUBLISH}),
    "roles/datastore.viewer": READ,
    "roles/datastore.user": READ | WRITE,
}
"""Predefined role → its permissions, as far as these calls need them.

Source: "Predefined roles" of each service.
"""

FIRESTORE: Final = "/google.firestore.v1.Firestore/"
PUBSUB: Final = "/google.pubsub.v1."
"""Beginnings of the paths of gRPC calls."""
_GET: Final = frozenset({"datastore.entities.get"})
FIRESTORE_METHODS: Final = {
    "GetDocument": _GET,
    "BatchGetDocuments": _GET,
    "BeginTransaction": frozenset(),
    "Rollback": frozenset(),
    "RunQuery": READ,
    "RunAggregationQuery": READ,
    "ListDocuments": READ,
    "Commit": WRITE,
    "BatchWrite": WRITE,
}
"""Method → permissions.

A transaction needs those of its reads and of its commit. The roles that infra/ grants have all
permissions to write or none, so the kinds of the writes in a commit make no difference.
"""
PUBLISH_METHOD: Final = f"{PUBSUB}Publisher/Publish"
FULFILLED: Final = frozenset({"", "training VMs only", "own database only"})
"""The conditions that calls of the local stack always fulfil: it has no VMs of others, and one
database.
"""
_CUSTOM_ROLE: Final = re.compile(
    r'role_id\s*=\s*"\$\{local\.name\}(\w+)(?:\$\{var\.role_suffix\})?"'
    r".*?permissions\s*=\s*\[(.*?)\]",
    re.DOTALL,
)
"""A custom role of infra/: its id without the prefix of the installation, and its permissions."""


@dataclass(frozen=True, slots=True)
class Access:
    """A permission on a resource: `project`, or a topic such as `topic submit`."""

    permission: str
    resource: str


def granted_access(
    account: str, table: str, roles: Mapping[str, frozenset[str]] = ROLES
) -> frozenset[Access]:
    """Return what the table grants to an account, as far as its conditions are `FULFILLED`.

    Roles that are not in `roles` grant nothing. `account`: the name of a function or of a console,
    or `worker`.
    """
    granted: set[Access] = set()
    for grant in csv.DictReader(table.splitlines()):
        is_of_account = grant["member"].removeprefix("function ") == account
        if is_of_account and grant["condition"] in FULFILLED:
            permissions = roles.get(grant["role"], ())
            granted.update(Access(permission, grant["on"]) for permission in permissions)
    return frozenset(granted)


def custom_roles(terraform: str) -> dict[str, frozenset[str]]:
    """Return the permissions of the custom roles in iam.tf, by their names in the table."""
    roles = _CUSTOM_ROLE.findall(terraform)
    return {
        f"trainmaster{name} (iam.tf)": frozenset(re.findall(r'"([\w.]+)"', permissions))
        for name, permissions in roles
    }


def required_access(method: str, topic: str) -> Iterator[Access]:
    """Yield the permissions of a gRPC call.

    Raises KeyError for a method that is not in this module.

    `topic`: path of the topic to which the call publishes.
    """
    if method == PUBLISH_METHOD:
        yield Access(PUBLISH, topic_resource(topic))
        return
    service, _, name = method.rpartition("/")
    if f"{service}/" != FIRESTORE:
        raise KeyError(method)
    for permission in sorted(FIRESTORE_METHODS[name]):
        yield Access(permission, "project")


def topic_resource(path: str) -> str:
    """Return the name of a topic in the table."""
    topic = path.rpartition("/")[2].removeprefix("trainmaster-")
    return f"topic {topic.replace('dead-letter', 'dead_letter')}"


def refusal(account: str, grants: frozenset[Access], method: str, topic: str) -> str:
    """Return the message of a refused call, which names the account and the permission; empty: the
    call may be made.
    """
    try:
        missing = [access for access in required_access(method, topic) if access not in grants]
    except KeyError:
        return (
            f"{account}: add the permissions of {method} to"
            " emulators/trainmaster_emulators/realism/call_access.py"
        )
    if not missing:
        return ""
    return (
        f"{account} does not have the permission {missing[0].permission} on {missing[0].resource}"
    )
