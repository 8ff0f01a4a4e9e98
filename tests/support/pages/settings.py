"""The table of docs/settings.md, from trainmaster.settings."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo

from tests.infra import iam_table
from trainmaster.core.model.money import Money
from trainmaster.settings import PREFIX, Settings

UNITS: Final = {"_s": "seconds", "_per_minute": "per minute"}
"""Suffix of a setting's name → unit."""
WORDS: Final[dict[Any, str]] = {
    str: "text",
    bool: "`true`, `false`",
    int: "whole number",
    float: "number",
    dict[str, int]: "`RESOURCE=NUMBER,…`",
    Money: "`AMOUNT CURRENCY`",
}
LISTS: Final = {
    "account_networks": "`ACCOUNT=NETWORK,…`",
    "allowed_resources": "`KIND=NAME,…`",
    "boot_images": "`FAMILY=IMAGE,…`",
    "metrics": "`off`, seconds, 10 to 300",
    "regions": "`REGION,…`",
}
"""Settings whose text has a form of its own."""


def table() -> str:
    """Return all settings as a table in Markdown."""
    head = (
        "| setting | takes | default | set by `infra/` | what for, and why so |\n| --- | --- | ---"
        " | --- | --- |\n"
    )
    in_infra = set_by_infra()
    return head + "".join(
        f"| `{PREFIX}{name.upper()}` | {_takes(name, field)} | {_default(field)} | "
        f"{'yes' if PREFIX + name.upper() in in_infra else ''} | {field.description} |\n"
        for name, field in Settings.model_fields.items()
    )


def set_by_infra() -> set[str]:
    """Return the environment variables that infra/functions.tf and infra/console.tf set."""
    console = (iam_table.INFRA / "console.tf").read_text(encoding="utf-8")
    of_console = re.findall(rf"(?m)^ +({PREFIX}\w+) +=", console)
    return {*iam_table.local_values()["environment"], *of_console}


def _takes(name: str, field: FieldInfo) -> str:
    kind: Any = field.annotation
    if name in LISTS:
        return LISTS[name]
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{member.value}`" for member in kind)
    kind = kind if kind in WORDS else next(member for member in get_args(kind) if member in WORDS)
    unit = next((words for suffix, words in UNITS.items() if name.endswith(suffix)), "")
    bounds = {
        attribute: getattr(constraint, attribute)
        for constraint in field.metadata
        for attribute in ("ge", "le", "min_length", "max_length")
        if getattr(constraint, attribute, None) is not None
    }
    return ", ".join(filter(None, (WORDS[kind], unit, _bounds(bounds))))


def _bounds(limits: dict[str, Any]) -> str:
    if {"min_length", "max_length"} <= set(limits):
        return f"{limits['min_length']} to {limits['max_length']} characters"
    if {"ge", "le"} <= set(limits):
        return f"{limits['ge']} to {limits['le']}"
    return f"{limits['ge']} or more" if "ge" in limits else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "none: it must be set"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value or value == 0 else "empty"
