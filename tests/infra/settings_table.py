"""The table of docs/settings.md, made of shared/settings.py: `python -m tests.infra.settings_table` prints it."""

from __future__ import annotations

import re
import sys
from enum import StrEnum
from typing import Any, Final, get_args

from pydantic.fields import FieldInfo

from emulators.stack.state import ROOT
from shared.presentation.price import Price
from shared.settings import PREFIX, Settings

PAGE: Final = ROOT / "docs" / "settings.md"
BEGIN: Final = "<!-- made of shared/settings.py by tests/infra/settings_table.py -->\n"
END: Final = "<!-- end -->"
UNITS: Final = {"_s": "seconds", "_per_minute": "calls a minute"}
"""How a name ends → its unit."""
WORDS: Final[dict[Any, str]] = {
    str: "text",
    bool: "`true`, `false`",
    int: "whole number",
    float: "number",
    dict[str, int]: "`RESOURCE=NUMBER,…`",
    Price: "`AMOUNT CURRENCY`",
}


def table() -> str:
    head = "| setting | takes | default | set by `infra/` | what for, and why so |\n| --- | --- | --- | --- | --- |\n"
    made = set_by_infra()
    return head + "".join(
        f"| `{PREFIX}{name.upper()}` | {_takes(name, field)} | {_default(field)} | "
        f"{'yes' if PREFIX + name.upper() in made else ''} | {field.description} |\n"
        for name, field in Settings.model_fields.items()
    )


def set_by_infra() -> set[str]:
    text = (ROOT / "infra" / "functions.tf").read_text(encoding="utf-8")
    block = text.partition("  environment = {\n")[2].partition("\n  }\n")[0]
    return set(re.findall(rf"(?m)^ *({PREFIX}\w+) +=", block))


def _takes(name: str, field: FieldInfo) -> str:
    kind: Any = field.annotation
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return ", ".join(f"`{each.value}`" for each in kind)
    kind = kind if kind in WORDS else next(each for each in get_args(kind) if each in WORDS)
    unit = next((said for end, said in UNITS.items() if name.endswith(end)), "")
    bounds = {
        attribute: getattr(each, attribute)
        for each in field.metadata
        for attribute in ("ge", "le", "min_length", "max_length")
        if getattr(each, attribute, None) is not None
    }
    return ", ".join(filter(None, (WORDS[kind], unit, _bounds(bounds))))


def _bounds(said: dict[str, Any]) -> str:
    if {"min_length", "max_length"} <= set(said):
        return f"{said['min_length']} to {said['max_length']} characters"
    if {"ge", "le"} <= set(said):
        return f"{said['ge']} to {said['le']}"
    return f"{said['ge']} or more" if "ge" in said else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "none: it must be set"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value or value == 0 else "empty"


if __name__ == "__main__":
    sys.stdout.write(table())
