"""Every resource, argument and nested block in infra/ against the real provider's schema, and terraform's syntax."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hcl2
import pytest

from emulators.stack.state import ROOT
from tests.infra import iam_table
from tests.infra.provider_schema import Block

INFRA = ROOT / "infra"
FILES = sorted(INFRA.rglob("*.tf"))
META = {"count", "for_each", "depends_on", "provider", "lifecycle", "provisioner", "connection"}
IS_BLOCK = "__is_block__"
OF_PARSER = {IS_BLOCK, "__comments__", "__inline_comments__"}


def test_the_schema_is_the_providers_own_and_whole(schema: dict[str, Block]) -> None:
    assert len(schema) > 1000
    subscription = schema["google_pubsub_subscription"]
    assert subscription.required == {"name", "topic"}
    assert set(subscription.blocks["dead_letter_policy"].block.attributes) == {
        "dead_letter_topic",
        "max_delivery_attempts",
    }
    assert schema["google_service_account"].attributes["email"].computed


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(INFRA)))
def test_everything_that_is_written_exists_and_what_is_required_is_there(path: Path, schema: dict[str, Block]) -> None:
    wrong = [problem for kind, name, body in resources(path) for problem in problems(kind, name, body, schema)]
    assert not wrong, "\n".join(wrong)


def test_a_wrong_name_a_missing_argument_and_an_unknown_resource_are_found(
    schema: dict[str, Block], tmp_path: Path
) -> None:
    path = tmp_path / "wrong.tf"
    path.write_text(
        'resource "google_pubsub_subscription" "a" {\n  name = "a"\n  retry_policy {\n    backoff = "1s"\n  }\n}\n'
        'resource "google_pubsub_queue" "b" {}\n'
    )
    found = [problem for kind, name, body in resources(path) for problem in problems(kind, name, body, schema)]
    assert found == [
        "google_pubsub_subscription.a: topic is required",
        "google_pubsub_subscription.a.retry_policy: has no argument backoff",
        "google_pubsub_queue.b: there is no such resource",
    ]


@pytest.mark.parametrize("folder", sorted({path.parent for path in FILES}), ids=lambda path: path.name)
def test_whatever_is_referred_to_is_declared(folder: Path) -> None:
    """Terraform itself says so, too (test_plan.py), but not that something is declared and never used."""
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.tf")))
    text = re.sub(r"(?m)^\s*#.*$", "", text)
    declared = {f"var.{name}" for name in re.findall(r'(?m)^variable "(\w+)"', text)}
    declared |= {f"module.{name}" for name in re.findall(r'(?m)^module "(\w+)"', text)}
    declared |= {f"{kind}.{name}" for kind, name in re.findall(r'(?m)^resource "(\w+)" "(\w+)"', text)}
    declared |= {f"data.{kind}.{name}" for kind, name in re.findall(r'(?m)^data "(\w+)" "(\w+)"', text)}
    for block in re.findall(r"(?ms)^locals \{\n(.*?)^\}", text):
        declared |= {f"local.{name}" for name in re.findall(r"(?m)^  (\w+)\s+=", block)}
    named = set(re.findall(r"(?<![\w.\"/])((?:var|local|module)\.\w+|data\.google_\w+\.\w+|google_\w+\.\w+)", text))
    assert named - declared == set()
    assert {name for name in declared if name.startswith(("var.", "local."))} <= named, "declared and never used"


def test_it_is_formatted_as_terraform_formats_it() -> None:
    terraform = shutil.which("terraform")
    if terraform is None:
        pytest.skip("terraform is not installed: its own formatting is not checked here")
    done = subprocess.run(
        [terraform, "fmt", "-check", "-recursive", str(INFRA)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_example_has_three_lines_to_fill_and_nothing_else_is_required() -> None:
    required = {
        name.strip('"')
        for variable in document(INFRA / "variables.tf")["variable"]
        for name, body in variable.items()
        if "default" not in body
    }
    lines = (INFRA / "terraform.tfvars.example").read_text(encoding="utf-8").splitlines()
    assert {line.partition("=")[0].strip() for line in lines} == required
    assert len(lines) == len(required) == 3


def test_the_table_of_who_may_do_what_is_the_one_that_the_files_say() -> None:
    """`python -m tests.infra.iam_table` prints the table to put there."""
    readme = (INFRA / "README.md").read_text(encoding="utf-8")
    assert readme.partition(iam_table.BEGIN)[2].partition(iam_table.END)[0] == iam_table.table()


def test_least_privilege() -> None:
    """The sentences of infra/README.md, held against every grant."""
    grants = iam_table.grants()
    of_machines = {each.who for each in grants if "Provisioner" in each.role or "serviceAccountUser" in each.role}
    assert of_machines == {"function provision"}
    worker = {each.on for each in grants if each.who == "worker" and each.role == "roles/pubsub.publisher"}
    assert worker == {"topic vm-ready", "topic replica-exit", "topic maintenance"}
    assert not [each for each in grants if each.role in ("roles/owner", "roles/editor", "roles/viewer")]
    assert [each.condition for each in grants if each.who == "worker" and each.role == "roles/storage.objectUser"] == [
        "no job files"
    ]


def document(path: Path) -> dict[str, Any]:
    with path.open(encoding="utf-8") as file:
        found: dict[str, Any] = hcl2.load(file)
        return found


def resources(path: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Type as the schema has it, name and body."""
    content = document(path)
    for kind, prefix in (("resource", ""), ("data", "data.")):
        for entry in content.get(kind, []):
            for type_name, named in entry.items():
                for name, body in named.items():
                    yield prefix + type_name.strip('"'), name.strip('"'), body


def problems(kind: str, name: str, body: dict[str, Any], schema: dict[str, Block]) -> Iterator[str]:
    block = schema.get(kind)
    where = f"{kind}.{name}"
    if block is None:
        yield f"{where}: there is no such resource"
    else:
        yield from within(body, block, where)


def within(body: dict[str, Any], block: Block, where: str) -> Iterator[str]:
    dynamic = {name.strip('"'): each for one in body.get("dynamic", []) for name, each in one.items()}
    given = {key for key in body if key not in OF_PARSER} | set(dynamic)
    yield from (f"{where}: {name} is required" for name in sorted(block.required - given))
    for key in sorted(given - META - {"dynamic"}):
        if not block.has(key):
            yield f"{where}: has no argument {key}"
            continue
        bodies = dynamic[key]["content"] if key in dynamic else body[key]
        for each in bodies if isinstance(bodies, list) else []:
            if isinstance(each, dict) and each.get(IS_BLOCK):
                if key not in block.blocks:
                    yield f"{where}: {key} is no block"
                else:
                    yield from within(each, block.blocks[key].block, f"{where}.{key}")
