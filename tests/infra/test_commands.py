"""Commands in the documentation and in infra/ exist: gcloud, trainmaster, make and terraform.

gcloud's commands are compared with the tree that its shell completion reads, trainmaster's with the
program, make's with the Makefile, terraform's with its help. A word in capitals, `…` or `${…}` is a
placeholder.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest
import typer

from tests.support.pages import read_page
from tests.support.terraform import terraform_program
from trainmaster.cli.main import app
from trainmaster_emulators.checkout import ROOT

PAGES: Final = sorted(
    [
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        ROOT / "shared" / "trainmaster" / "algorithms" / "README.md",
        ROOT / "cloudbuild.yaml",
        ROOT / "cloudbuild.deliver.yaml",
        *(ROOT / "docs").rglob("*.md"),
        *(path for path in (ROOT / "infra").rglob("*") if path.suffix in {".md", ".tf"}),
        *(ROOT / "examples").rglob("*.md"),
    ]
)
PROGRAMS: Final = ("gcloud", "trainmaster", "make", "terraform")
MAKEFILE: Final = (ROOT / "Makefile").read_text(encoding="utf-8")
PROSE: Final = re.compile(r"[…|]|\$\{")

NAME: Final = re.compile(r"\btrainmaster-[A-Za-z-]*")
"""Name of a resource of an installation. One that ends in `-` is the beginning of several."""
OTHER_NAMES: Final = {
    "trainmaster-job",  # a label of VMs
    "trainmaster-NAME",  # any function
    "trainmaster-deliver",  # what an operator creates for the delivery
    "trainmaster-delivery",
    "trainmaster-terraform",
}
"""Names that infra/ does not create."""

_BLOCK: Final = re.compile(r"^ *```[a-z]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_SPAN: Final = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINE: Final = re.compile(rf"^[\s#$]*((?:{'|'.join(PROGRAMS)})\s.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {shlex.join(self.words)}"


class WrongError(Exception):
    """The command does not exist, or it has no such flag."""


def text_of(page: Path) -> str:
    """Return the text of a file, or that of a page as the site has it."""
    return read_page(page) if page.suffix == ".md" else page.read_text(encoding="utf-8")


def commands(page: Path, text: str) -> Iterator[Command]:
    """Yield the commands in code spans and blocks of a Markdown page, or in the lines of another
    file.
    """
    if page.suffix == ".md":
        blocks = _BLOCK.findall(text)
        spans = _SPAN.findall(_BLOCK.sub("", text))
        lines = [line for block in blocks for line in _LINE.findall(block.replace("\\\n", " "))]
        lines += [" ".join(span.split()) for span in spans if span.split()[0] in PROGRAMS]
    else:
        lines = _LINE.findall(text.replace("\\\n", " "))
    for line in lines:
        words = shlex.split(re.sub(r"\s# .*", "", line))
        alternatives = (
            word.split("|") if re.fullmatch(r"[a-z|-]+", word) else [word] for word in words
        )
        for combination in product(*alternatives):
            if len(combination) > 1 and combination[1] != "{":  # a Terraform block
                yield Command(str(page.relative_to(ROOT)), combination)


ALL: Final = sorted(
    {command for page in PAGES for command in commands(page, text_of(page))},
    key=str,
)


@cache
def gcloud_tree() -> dict[str, Any]:
    """Return gcloud's tree of commands. Source: gcloud_completions.py in the Cloud SDK."""
    program = shutil.which("gcloud")
    assert program, "the Cloud SDK is not installed"
    root = next(
        parent for parent in Path(program).resolve().parents if (parent / "data" / "cli").is_dir()
    )
    text = (root / "data" / "cli" / "gcloud_completions.py").read_text(encoding="utf-8")
    tree: dict[str, Any] = json.loads(text.partition("STATIC_COMPLETION_CLI_TREE = ")[2])
    return tree


def check_gcloud(words: tuple[str, ...]) -> None:
    node = gcloud_tree()
    flags = dict(node["flags"])
    rest = list(words[1:])
    while rest and rest[0] in node["commands"]:
        node = node["commands"][rest.pop(0)]
        flags |= node["flags"]
    if node["commands"] and rest and not PROSE.search(rest[0]):
        raise WrongError(f"gcloud has no command {rest[0]!r} there")
    for flag, value in _flags(rest):
        known = flags.get(flag, flags.get(flag.replace("--no-", "--", 1)))
        if known is None:
            raise WrongError(f"no flag {flag}")
        if isinstance(known, list) and value not in known and not value.isupper():
            raise WrongError(f"{flag} takes one of {known}")


@cache
def trainmaster_tree() -> Any:
    return typer.main.get_command(app)


@cache
def subcommand(group: Any, name: str) -> Any:
    """Return a command of a group, or None.

    The group imports and builds the command with each call.
    """
    return group.get_command(None, name)


def check_trainmaster(words: tuple[str, ...]) -> None:
    command = trainmaster_tree()
    rest = list(words[1:])
    while hasattr(command, "get_command") and rest and subcommand(command, rest[0]):
        command = subcommand(command, rest.pop(0))
    if (
        hasattr(command, "get_command")
        and rest
        and not rest[0].startswith("--")
        and not PROSE.search(rest[0])
    ):
        raise WrongError(f"trainmaster has no command {rest[0]!r} there")
    known = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for flag, _ in _flags(rest):
        if flag not in {*known, "--help"}:
            raise WrongError(f"no flag {flag}")


def check_make(words: tuple[str, ...]) -> None:
    verbs = set(re.findall(r"(?m)^([a-z][a-z-]*):.*## ", MAKEFILE))
    variables = set(re.findall(r"(?m)^([A-Z_]+) \??:?=", MAKEFILE))
    for word in words[1:]:
        name, is_variable, _ = word.partition("=")
        if PROSE.search(word) or name in (variables if is_variable else verbs):
            continue
        raise WrongError(f"the Makefile has no {name!r}")


@cache
def terraform_help(*command: str) -> str:
    program = terraform_program()
    environment = {**os.environ, "TF_CLI_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        [program, *command, "-help"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment,
    )
    return done.stdout


def check_terraform(words: tuple[str, ...]) -> None:
    """Compare a command with terraform's help, which lists the commands at each level.

    A flag has one dash.
    """
    words = tuple(word for word in words if not word.startswith("-chdir="))
    command: list[str] = []
    for word in words[1:]:
        if not re.search(rf"(?m)^ {{2,4}}{re.escape(word)}  +\w", terraform_help(*command)):
            break
        command.append(word)
    rest = words[1 + len(command) :]
    if not command or (rest and "Subcommands:" in terraform_help(*command)):
        raise WrongError(f"terraform has no command {rest[0]!r} there")
    # They take plan's flags, which their help does not list.
    takes_plans = command[0] in {
        "apply",
        "destroy",
    }
    known = terraform_help(*command) + (terraform_help("plan") if takes_plans else "")
    for word in rest:
        flag = word.partition("=")[0]
        if word.startswith("-") and not re.search(rf"(?m)^  {re.escape(flag)}\b", known):
            raise WrongError(f"no flag {flag}")


CHECKS: Final = {
    "gcloud": check_gcloud,
    "trainmaster": check_trainmaster,
    "make": check_make,
    "terraform": check_terraform,
}


def _flags(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield flags with their values. Words after `--` belong to another program."""
    end = words.index("--") if "--" in words else len(words)
    for index, word in enumerate(words[:end]):
        if word.startswith("--"):
            flag, has_value, value = word.partition("=")
            yield flag, value if has_value else " ".join(words[index + 1 : index + 2])


def test_documented_commands_exist() -> None:
    wrong = {}
    for command in ALL:
        try:
            CHECKS[command.words[0]](command.words)
        except WrongError as error:
            wrong[str(command)] = str(error)
    assert wrong == {}


def test_names_of_resources_in_gclouds_commands_are_those_of_infra() -> None:
    names = NAME.findall((ROOT / "tests/infra/names_of_an_installation.txt").read_text("utf-8"))
    unknown = {
        (str(command), name)
        for command in ALL
        if command.words[0] == "gcloud"
        for name in NAME.findall(" ".join(command.words))
        if name not in {*names, *OTHER_NAMES} and not name.endswith("-")
    }
    assert unknown == set()


def test_commands_are_extracted_from_markdown_yaml_and_terraform() -> None:
    assert {command.words[0] for command in ALL} == set(PROGRAMS)
    pages = {command.page for command in ALL}
    assert {
        "README.md",
        "cloudbuild.deliver.yaml",
        "infra/outputs.tf",
        "docs/runbooks.md",
    } <= pages


@pytest.mark.parametrize(
    "typed",
    [
        "gcloud compute instance list",
        "gcloud functions logs read NAME --gen3",
        "gcloud functions logs read NAME --min-log-level loud",
        "trainmaster job list",
        "trainmaster list --most 3",
        "trainmaster local begin",
        "trainmaster --versions",
        "make trian",
        "make run FAULT=1",
        "terraform destory",
        "terraform state remove X",
        "terraform apply -auto-aprove",
    ],
)
def test_wrong_command_is_detected(typed: str) -> None:
    (command,) = commands(ROOT / "README.md", f"Type `{typed}`.")
    with pytest.raises(WrongError):
        CHECKS[command.words[0]](command.words)
