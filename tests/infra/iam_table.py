"""Who may do what, read from infra/*.tf: `python -m tests.infra.iam_table` prints the table of infra/README.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import hcl2

INFRA: Final = Path(__file__).parents[2] / "infra"
BEGIN: Final = "<!-- who may do what: made from the .tf files by tests/infra/iam_table.py -->\n"
END: Final = "<!-- end -->"

_WHO: Final = (
    (r"google_service_account\.function\[\"?([\w.]+)\"?\]\.member", "function {}"),
    (r"google_service_account\.(\w+)\.member", "{}"),
    (r"local\.pubsub_agent", "Pub/Sub itself"),
    (r"data\.google_storage_project_service_account\.this\.member", "Cloud Storage itself"),
    (r"google_logging_project_sink\.(\w+)\.writer_identity", "log sink {}"),
    (r"serviceAccount:\$\{var\.pusher\}", "pusher"),
    (r"allUsers", "anyone (the function asks who)"),
    (r"each\.key", "clients (var.clients)"),
)
_ON: Final = {
    "topic": "topic",
    "subscription": "subscription",
    "bucket": "bucket",
    "service_account_id": "account",
    "service": "function",
    "repository": "registry",
    "project": "project",
}


@dataclass(frozen=True, order=True, slots=True)
class Grant:
    who: str
    role: str
    on: str
    condition: str = ""


def grants() -> list[Grant]:
    return sorted({grant for path in sorted(INFRA.rglob("*.tf")) for grant in _of(path)})


def table() -> str:
    head = "| who | may (role) | on | only |\n| --- | --- | --- | --- |\n"
    return head + "".join(f"| {each.who} | `{each.role}` | {each.on} | {each.condition} |\n" for each in grants())


def _of(path: Path) -> Iterator[Grant]:
    for entry in _load(path).get("resource", []):
        for kind, named in entry.items():
            for body in named.values():
                if kind.strip('"').endswith("_iam_member"):
                    yield from _expanded(body)


def _expanded(body: dict[str, Any]) -> Iterator[Grant]:
    """One grant for each key of its `for_each`, where the files themselves say what those are."""
    for key in _keys(_text(body.get("for_each", ""))):
        said = {name: _text(value).replace("each.key", key) for name, value in body.items() if isinstance(value, str)}
        function, _, topic = key.partition("→")
        said = {
            name: text.replace("each.value.function", function).replace("each.value.topic", topic)
            for name, text in said.items()
        }
        what = next(name for name in _ON if name in said and not (name == "project" and "service" in said))
        condition = body["condition"][0]["title"].strip('"') if "condition" in body else ""
        yield Grant(_who(said["member"]), _role(said["role"]), f"{_ON[what]}{_name(what, said[what])}", condition)


def _keys(for_each: str) -> list[str]:
    local = _locals()
    if "local.publications" in for_each:
        return [f"{name}→{topic}" for name, topics in local["publishes"].items() for topic in _strings(topics)]
    if "local.stateful" in for_each:
        return [name for name in local["functions"] if name != "upload"]
    if "function.topic != null" in for_each:
        return [name for name, each in local["functions"].items() if _text(each["topic"]) not in ("None", "null")]
    if "local.functions" in for_each:
        return list(local["functions"])
    if "local.worker_topics" in for_each:
        return re.findall(r'"([\w-]+)"', str(local["worker_topics"]))
    return re.findall(r'"([\w./-]+)"', for_each) or ["each.key"]


@cache
def _locals() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in INFRA.glob("*.tf"):
        for block in _load(path).get("locals", []):
            found.update(block)
    return found


def _who(member: str) -> str:
    for pattern, words in _WHO:
        match = re.search(pattern, member)
        if match:
            return words.format(*match.groups())
    raise ValueError(f"who is {member}?")


def _role(role: str) -> str:
    own = re.search(r"google_project_iam_custom_role\.(\w+)", role)
    return f"trainmaster{own[1].title().replace('_', '')} (iam.tf)" if own else role


def _name(what: str, value: str) -> str:
    """` submit` of a topic, nothing of the project."""
    if what == "project":
        return ""
    if value == "google_cloudfunctions2_function.this.name":
        return " that reads a topic"
    named = re.search(r"\[\"?([\w.-]+)\"?\]", value) or re.search(r"google_\w+\.(\w+)\.", value)
    if named is None:
        return ""
    return f" {named[1]}".replace(" this", "")


def _strings(values: list[str]) -> list[str]:
    return [value.strip('"') for value in values]


def _text(value: object) -> str:
    return re.sub(r"^\$\{(.*)\}$", r"\1", str(value).strip('"'))


@cache
def _load(path: Path) -> dict[str, Any]:
    with path.open(encoding="utf-8") as file:
        found: dict[str, Any] = hcl2.load(file)
        return found


if __name__ == "__main__":
    sys.stdout.write(table())
