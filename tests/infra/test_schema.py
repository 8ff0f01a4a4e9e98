"""Resources, arguments and nested blocks in infra/, checked against the schema of Google's
provider.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.infra import bare_provider, iam_table
from tests.infra.provider_schema import Block
from tests.support.terraform import terraform_program
from trainmaster_emulators.checkout import ROOT

INFRA = ROOT / "infra"
FILES = sorted(INFRA.rglob("*.tf"))
META = {"count", "for_each", "depends_on", "provider", "lifecycle", "provisioner", "connection"}
IS_BLOCK = "__is_block__"
PARSER_KEYS = {IS_BLOCK, "__comments__", "__inline_comments__"}


def test_provider_schema_has_required_arguments_blocks_and_computed_values(
    schema: dict[str, Block],
) -> None:
    subscription = schema["google_pubsub_subscription"]
    assert subscription.required == {"name", "topic"}
    assert set(subscription.blocks["dead_letter_policy"].block.attributes) == {
        "dead_letter_topic",
        "max_delivery_attempts",
    }
    assert schema["google_service_account"].attributes["email"].computed


def test_arguments_exist_and_required_ones_are_set(schema: dict[str, Block]) -> None:
    assert [
        f"{path.relative_to(INFRA)}: {problem}"
        for path in FILES
        for kind, name, body in resources(path)
        for problem in problems(kind, name, body, schema)
    ] == []


def test_wrong_argument_missing_argument_and_unknown_resource_are_detected(
    schema: dict[str, Block], tmp_path: Path
) -> None:
    path = tmp_path / "wrong.tf"
    path.write_text(
        'resource "google_pubsub_subscription" "a" {\n  name = "a"\n  retry_policy {\n    backoff ='
        ' "1s"\n  }\n}\nresource "google_pubsub_queue" "b" {}\n'
    )
    wrong = [
        problem
        for kind, name, body in resources(path)
        for problem in problems(kind, name, body, schema)
    ]
    assert wrong == [
        "google_pubsub_subscription.a: topic is required",
        "google_pubsub_subscription.a.retry_policy: has no argument backoff",
        "google_pubsub_queue.b: there is no such resource",
    ]


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in FILES}), ids=lambda path: path.name
)
def test_variables_and_locals_are_declared_and_used(folder: Path) -> None:
    """`terraform validate` detects undeclared names, too (test_plan.py), but not unused ones."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.tf")))
    text = re.sub(r"(?m)^\s*#.*$", "", text)
    declared = {f"var.{name}" for name in re.findall(r'(?m)^variable "(\w+)"', text)}
    declared |= {f"module.{name}" for name in re.findall(r'(?m)^module "(\w+)"', text)}
    declared |= {
        f"{kind}.{name}" for kind, name in re.findall(r'(?m)^resource "(\w+)" "(\w+)"', text)
    }
    declared |= {
        f"data.{kind}.{name}" for kind, name in re.findall(r'(?m)^data "(\w+)" "(\w+)"', text)
    }
    for block in re.findall(r"(?ms)^locals \{\n(.*?)^\}", text):
        declared |= {f"local.{name}" for name in re.findall(r"(?m)^  (\w+)\s+=", block)}
    references = set(
        re.findall(
            r"(?<![\w.\"/])((?:var|local|module)\.\w+|(?:data\.)?google_\w+\.\w+|time_\w+\.\w+)",
            text,
        )
    )
    assert references - declared == set()
    assert {name for name in declared if name.startswith(("var.", "local."))} <= references, (
        "declared but not used"
    )


def test_files_are_formatted_by_terraform_fmt() -> None:
    done = subprocess.run(
        [terraform_program(), "fmt", "-check", "-recursive", str(INFRA)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_example_settings_are_the_required_variables_and_limits_of_the_cost() -> None:
    required = {
        name.strip('"')
        for variable in iam_table.load(INFRA / "variables.tf")["variable"]
        for name, body in variable.items()
        if "default" not in body
    }
    lines = (INFRA / "terraform.tfvars.example").read_text(encoding="utf-8").splitlines()
    given = {line.partition("=")[0].strip() for line in lines if line and not line.startswith("#")}
    assert given == required | {"limits"}


def test_file_of_grants_has_all_grants() -> None:
    """If it fails, run `python -m tests.infra.iam_table`."""
    assert iam_table.ROWS.read_text(encoding="utf-8") == iam_table.rows()


def test_only_provision_manages_vms_and_workers_write_no_job_files() -> None:
    """The sentences of infra/README.md, section "Permissions"."""
    grants = iam_table.grants()
    # Nothing runs as the account `callers`, which has no role: who may act as it may call the API.
    managers = {
        grant.member
        for grant in grants
        if "Provisioner" in grant.role
        or ("serviceAccountUser" in grant.role and grant.resource != "account callers")
    }
    assert managers == {
        "function provision",
        "users (var.ssh_users)",
    }, "a login on a VM includes its account"
    worker = [grant for grant in grants if grant.member == "worker"]
    assert {grant.resource for grant in worker if grant.role == "roles/pubsub.publisher"} == {
        "topic vm-ready",
        "topic replica-exit",
        "topic maintenance",
    }
    writes = {
        grant.resource: grant.condition
        for grant in worker
        if grant.role == "roles/storage.objectUser"
    }
    assert writes == {
        "bucket": "no job files, packages, agents or prices",
        "each bucket of var.worker_write_buckets": "",
        # The variable's own check refuses the buckets of an installation.
    }
    assert not [
        grant for grant in grants if grant.role in ("roles/owner", "roles/editor", "roles/viewer")
    ]


def test_workers_read_the_agent_and_cannot_write_it() -> None:
    """A program with the worker's permissions must not be able to replace the agent of
    other jobs.
    """
    stage = [grant for grant in iam_table.grants() if grant.resource == "bucket stage"]
    assert sorted((grant.member, grant.role, grant.condition) for grant in stage) == [
        ("builder", "roles/storage.objectViewer", "no export of the database"),
        ("worker", "roles/storage.objectViewer", "agents and tools only"),
    ]
    writers = {
        "roles/storage.objectAdmin",
        "roles/storage.objectUser",
        "roles/storage.objectCreator",
        "roles/storage.admin",
    }
    assert not [
        grant
        for grant in iam_table.grants()
        if grant.resource == ""  # the whole project
        and grant.role in writers
    ]


def resources(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield type, name and body.

    The type of a data source has the prefix `data.`, as in the schema.
    """
    content = iam_table.load(path)
    for kind, prefix in (("resource", ""), ("data", "data.")):
        for entry in content.get(kind, []):
            for type_name, bodies in entry.items():
                for name, body in bodies.items():
                    yield prefix + type_name.strip('"'), name.strip('"'), body


def problems(kind: str, name: str, body: dict[str, Any], schema: dict[str, Block]) -> Iterator[str]:
    if kind == "terraform_data":
        return  # terraform's own; `terraform validate` checks it
    # The schema in the file is that of the provider google only.
    block = {**bare_provider.TIME, **schema}.get(kind)
    where = f"{kind}.{name}"
    if block is None:
        yield f"{where}: there is no such resource"
    else:
        yield from problems_in_block(body, block, where)


def problems_in_block(body: dict[str, Any], block: Block, where: str) -> Iterator[str]:
    dynamic = {
        name.strip('"'): content
        for entry in body.get("dynamic", [])
        for name, content in entry.items()
    }
    given = {key for key in body if key not in PARSER_KEYS} | set(dynamic)
    yield from (f"{where}: {name} is required" for name in sorted(block.required - given))
    for key in sorted(given - META - {"dynamic"}):
        if not block.has(key):
            yield f"{where}: has no argument {key}"
            continue
        bodies = dynamic[key]["content"] if key in dynamic else body[key]
        for inner in bodies if isinstance(bodies, list) else []:
            if isinstance(inner, dict) and inner.get(IS_BLOCK):
                if key not in block.blocks:
                    yield f"{where}: {key} is not a block"
                else:
                    yield from problems_in_block(inner, block.blocks[key].block, f"{where}.{key}")
