"""What the reasons of decisions mean, and what a user does about them.

The text is in reasons.yaml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from trainmaster.core.decisions import Reason

PAGE: Final = "docs/reasons.md"
"""The page of the documentation that is made of them."""
_LINK: Final = re.compile(r"\[([^]]+)\]\((?:\w+/)*([\w-]+)\.md[^)]*\)")
"""A link of Markdown: its text, and the page without its folder and ending."""
_TEXT: Final = Path(__file__).with_suffix(".yaml")


@dataclass(frozen=True, slots=True)
class ReasonHelp:
    """A reason in words. Backquotes enclose code. Addresses of links are relative to PAGE."""

    rules: tuple[int, ...]
    """Ids of the rules whose decisions have this reason; 0 is the normal course of a job."""
    means: str
    do: str = ""
    """Advice; empty if nothing needs to be done."""


@cache
def reasons_by_topic() -> Mapping[str, Mapping[Reason, ReasonHelp]]:
    """Return all reasons by topic, in the order in which pages show them."""
    topics: Mapping[str, Mapping[str, Any]] = yaml.safe_load(_TEXT.read_text(encoding="utf-8"))
    return {topic: _reasons(entries) for topic, entries in topics.items()}


def _reasons(entries: Mapping[str, Any]) -> Mapping[Reason, ReasonHelp]:
    """Return the reasons of a topic."""
    return {
        Reason(name): ReasonHelp(tuple(entry["rules"]), entry["means"], entry.get("do", ""))
        for name, entry in entries.items()
    }


def help_on(reason: Reason) -> ReasonHelp:
    """Return what a reason means. Each has an entry."""
    return next(reasons[reason] for reasons in reasons_by_topic().values() if reason in reasons)


def without_links(text: str) -> str:
    """Return the text for a terminal or the console: the page of a link is in brackets."""
    return _LINK.sub(r'\1 (page "\2" of the documentation)', text)


def reason_view(reason: Reason) -> dict[str, object]:
    """Return what `reason_lines` says, for programs."""
    reason_help = help_on(reason)
    return {
        "reason": reason.value,
        "rules": [rule for rule in reason_help.rules if rule],
        "means": without_links(reason_help.means),
        "do": without_links(reason_help.do),
    }


def reason_lines(reason: Reason) -> str:
    """Return what a reason means, by which rules, and what to do, in lines for a terminal."""
    reason_help = help_on(reason)
    rules = ", ".join(str(rule) for rule in reason_help.rules if rule)
    lines = [f"{reason}: {without_links(reason_help.means)}"]
    if rules:
        lines.append(f"Rules: {rules}")
    if reason_help.do:
        lines.append(f"What to do: {without_links(reason_help.do)}")
    return "\n".join(lines)
