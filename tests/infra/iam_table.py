"""The IAM grants of infra/*.tf, as infra/grants.csv and as the table of infra/README.md.

`python -m tests.infra.iam_table` writes infra/grants.csv, which the local stack reads: it has no
parser of Terraform's language.

Terraform is not run. The parser leaves its expressions as texts, such as
`google_service_account.function["submit"].member`, and the patterns here find in these texts which
member and which resource they name.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import hcl2

INFRA: Final = Path(__file__).parents[2] / "infra"
ROWS: Final = INFRA / "grants.csv"

_MEMBERS: Final = (
    (r"google_service_account\.function\[\"?([\w.]+)\"?\]\.member", "function {}"),
    (r"google_service_account\.console\[\"?([\w.]+)\"?\]\.member", "{}"),
    (r"google_service_account\.(\w+)(?:\[each\.key\])?\.member", "{}"),
    (r"local\.iap_agent", "IAP's service agent"),
    (r"(?:local|var\.installed)\.pubsub_agent", "Pub/Sub's service agent"),
    (
        r"data\.google_storage_project_service_account\.this\.member",
        "Cloud Storage's service agent",
    ),
    (r"google_logging_project_sink\.(\w+)\.writer_identity", "log sink {}"),
    (r"serviceAccount:\$\{var\.installed\.pusher\}", "pusher"),
    (r"allUsers", "anyone (the function checks the caller)"),
)
"""Pattern of a `member` expression → its name in the table."""

_RESOURCES: Final = {
    "topic": "topic",
    "subscription": "subscription",
    "bucket": "bucket",
    "service_account_id": "account",
    "secret_id": "secret",
    "cloud_run_service_name": "IAP of",
    "service": "function",
    "repository": "registry",
    "project": "project",
}
"""Argument that names the resource of a grant → kind of resource in the table.

The first one that a grant has counts: `project` also says where other resources are.
"""


@dataclass(frozen=True, order=True, slots=True)
class Grant:
    """A role that a member has on a resource. All fields are words of the table."""

    member: str
    """Such as `function submit`, `worker` or `users (var.clients)`."""
    role: str
    """Such as `roles/pubsub.publisher`; a role of infra/iam.tf names that file."""
    resource: str
    """Kind and name, such as `topic submit`; without a name, that of the installation."""
    condition: str = ""
    """Title of the IAM condition; empty: there is none."""


@cache
def grants() -> list[Grant]:
    """Return all grants of infra/ and its modules, each once.

    Raises ValueError if a member is not in `_MEMBERS`.
    """
    return sorted({grant for path in sorted(INFRA.rglob("*.tf")) for grant in _grants_in(path)})


def rows() -> str:
    """Return the text of infra/grants.csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("member", "role", "on", "condition"))
    writer.writerows((row.member, row.role, row.resource, row.condition) for row in grants())
    return text.getvalue()


def table() -> str:
    """Return the table of infra/README.md."""
    head = "| member | role | on | condition |\n| --- | --- | --- | --- |\n"
    rows = (
        f"| {row.member} | `{row.role}` | {row.resource} | {row.condition} |\n" for row in grants()
    )
    return head + "".join(rows)


@cache
def load(path: Path) -> dict[str, Any]:
    """Return the blocks of a file of Terraform, by type."""
    with path.open(encoding="utf-8") as file:
        document: dict[str, Any] = hcl2.load(file)
        return document


@cache
def local_values() -> dict[str, Any]:
    """Return the `locals` of all files in infra/."""
    values: dict[str, Any] = {}
    for path in INFRA.glob("*.tf"):
        for block in load(path).get("locals", []):
            values.update(block)
    return values


def strings(values: list[str]) -> list[str]:
    """Remove the quotes that the parser keeps around strings."""
    return [value.strip('"') for value in values]


def _grants_in(path: Path) -> Iterator[Grant]:
    for body in _iam_members(path):
        is_to_each_function = "var.account" in body["member"]  # of the module event_function
        if is_to_each_function:
            for function in _functions():
                yield from _grants_to(function, body)
        else:
            yield from _expand(body)


def _iam_members(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the arguments of each resource whose type ends with `_iam_member`: one grant, or one
    for each key of its `for_each`.
    """
    for entry in load(path).get("resource", []):
        for kind, resources in entry.items():
            if kind.strip('"').endswith("_iam_member"):
                yield from resources.values()


@dataclass(frozen=True, slots=True)
class _Function:
    """A function or console: one call of the module event_function in infra/."""

    member: str
    """Its service account, as the table names it."""
    state: str
    """Its role on the database, which has the state of all jobs: `user` or `viewer`."""
    publishes: tuple[str, ...]
    """Topics that it publishes to."""


def _functions() -> Iterator[_Function]:
    local = local_values()
    calls = {
        name.strip('"'): _text(call.get("state"))
        for path in INFRA.glob("*.tf")
        for module in load(path).get("module", [])
        for name, call in module.items()
    }
    for name, topics in local["publishes"].items():
        state = _chosen(calls["function"], f'each.key == "{name}"')
        yield _Function(f"function {name}", state, (*strings(topics), "dead_letter"))
    for name, console in local["consoles"].items():
        state = _chosen(calls["console"], "each.value.acts" if console["acts"] else "")
        yield _Function(name, state, tuple(strings(console["publishes"])))


def _chosen(expression: str, fact: str) -> str:
    """Return the value of `CONDITION ? "user" : "viewer"`, where only `fact` is true."""
    condition, then, otherwise = re.findall(r'^(.+) \? "(\w+)" : "(\w+)"$', expression)[0]
    return str(then if condition == fact else otherwise)


def _grants_to(function: _Function, body: dict[str, Any]) -> Iterator[Grant]:
    """Yield the grants of a resource of the module event_function."""
    is_for_users_only = 'var.state == "user"' in body.get("count", "")
    if is_for_users_only and function.state != "user":
        return
    role = _text(body["role"]).replace("${var.state}", function.state)
    if "for_each" in body:
        for topic in function.publishes:
            yield Grant(function.member, role, f"topic {topic}")
    else:
        yield Grant(function.member, role, "project", _condition(body))


def _expand(body: dict[str, Any]) -> Iterator[Grant]:
    """Yield one grant for each key of the resource's `for_each`, or one if it has none."""
    for_each = _text(body.get("for_each", ""))
    for key in _keys(for_each):
        arguments = {
            name: (
                _text(value)
                .replace("each.value.function", key)
                .replace("each.value.name", f"[{key}]")
                .replace("each.key", key)
            )
            for name, value in body.items()
            if isinstance(value, str)
        }
        argument = next(name for name in _RESOURCES if name in arguments)
        resource = f"{_RESOURCES[argument]}{_resource_name(argument, arguments[argument])}"
        role = _role(arguments["role"])
        if variable := re.search(r"var\.worker_\w+", for_each):  # a list of the operator's own
            resource = f"each {_RESOURCES[argument]} of {variable[0]}"
            role = "its roles" if role.startswith("each.value") else role
        if "local.package_buckets" in for_each:
            resource = "each bucket of var.worker_read_buckets and var.worker_write_buckets"
        users = _users(for_each, arguments["member"])
        yield Grant(users or _member(arguments["member"]), role, resource, _condition(body))


def _condition(body: dict[str, Any]) -> str:
    """Return the title of a grant's condition; empty: it has none."""
    if "condition" not in body:
        return ""
    title: str = body["condition"][0]["title"]
    return title.strip('"').replace("${local.of_installation}", "")


def _keys(for_each: str) -> list[str]:
    """Return the keys of a `for_each`; `each.key` if its expression does not show them."""
    local = local_values()
    if for_each == "google_pubsub_subscription.this":
        return [
            topic
            for function in local["functions"].values()
            for topic in strings(function["topics"])
        ]
    if "local.installed_consoles" in for_each:
        return list(local["consoles"])
    named = re.search(r"local\.(worker_topics|acceptors)", for_each)
    literals = str(local[named[1]]) if named else for_each
    return re.findall(r'"([\w./-]+)"', literals) or ["each.key"]


def _users(for_each: str, member: str) -> str:
    """Return the variable that lists the members; empty: `member` is not an element of
    a variable.
    """
    if member not in ("each.key", "each.value"):
        return ""
    (variable,) = re.findall(r"var\.(\w+)\b(?! *\?)", for_each)
    return f"users (var.{variable})"


def _member(expression: str) -> str:
    """Return the table's words for a `member`. Raises ValueError if `_MEMBERS` does not know it."""
    for pattern, words in _MEMBERS:
        match = re.search(pattern, expression)
        if match:
            return words.format(*match.groups())
    raise ValueError(f"add the member {expression} to _MEMBERS")


def _role(expression: str) -> str:
    """Return the role. The id of a custom role is `trainmaster` and its name in iam.tf."""
    custom = re.search(r"google_project_iam_custom_role\.(\w+)", expression)
    return f"trainmaster{custom[1].title().replace('_', '')} (iam.tf)" if custom else expression


def _resource_name(argument: str, expression: str) -> str:
    """Return the name with a leading space, such as ` submit` for a topic; nothing for
    the project.
    """
    if argument == "project":
        return ""
    if expression == "google_cloudfunctions2_function.this.name":
        return " that reads a topic"
    match = re.search(r"\[\"?([A-Za-z][\w.-]*)\"?\]", expression) or re.search(
        r"google_\w+\.(\w+)[.\[]", expression
    )
    return f" {match[1]}".replace(" this", "") if match else ""


def _text(value: object) -> str:
    """Remove quotes and the `${}` around an expression."""
    return re.sub(r"^\$\{(.*)\}$", r"\1", str(value).strip('"'))


if __name__ == "__main__":
    ROWS.write_text(rows(), encoding="utf-8")
