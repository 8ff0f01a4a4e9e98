"""The table of the variables of infra/, from their descriptions in Terraform."""

from __future__ import annotations

import json
from typing import Any, Final

import hcl2

from tests.infra.iam_table import INFRA

FILES: Final = ("variables.tf", "console.tf", "worker_access.tf")
"""The files of infra/ that declare variables, in the order of the table."""


def table() -> str:
    """Return the table in Markdown: name, default and description of each variable."""
    rows = "".join(
        f"| `{name}` | {_default(fields)} | {_text(fields['description'])} |\n"
        for file in FILES
        for name, fields in _variables(file)
    )
    return f"| variable | default | what for |\n| --- | --- | --- |\n{rows}"


def _variables(file: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the variables of a file: name and fields."""
    with (INFRA / file).open(encoding="utf-8") as stream:
        document: dict[str, Any] = hcl2.load(stream)
    return [
        (name.strip('"'), fields)
        for block in document.get("variable", ())
        for name, fields in block.items()
        if not name.startswith("__")
    ]


def _default(fields: dict[str, Any]) -> str:
    """Return the default as Terraform writes it; empty for a variable that must be set."""
    if "default" not in fields:
        return "required"
    value = fields["default"]
    text = value if isinstance(value, str) else json.dumps(value)
    return f"`{text}`" if text not in ("", '""') else "empty"


def _text(description: str) -> str:
    """Return the description as the text of a cell."""
    text = description.strip('"').replace('\\"', '"')
    return text.replace("|", "\\|")
