"""The sections of docs/reasons.md, one for each reason, from reasons.yaml."""

from __future__ import annotations

from collections.abc import Iterator

from trainmaster.core.decisions import Reason
from trainmaster.presentation.reasons import ReasonHelp, reasons_by_topic


def sections() -> str:
    """Return a heading for each topic, with the reasons below it."""
    lines: list[str] = []
    for topic, reasons in reasons_by_topic().items():
        lines += [f"## {topic}", ""]
        for reason, text in reasons.items():
            lines += _section(reason, text)
    return "\n".join(lines)


def _section(reason: Reason, text: ReasonHelp) -> Iterator[str]:
    yield f"### {reason}"
    yield ""
    yield f"{text.means} ({_rules(text.rules)})"
    yield ""
    if text.do:
        yield f"**What to do:** {text.do}"
        yield ""


def _rules(rules: tuple[int, ...]) -> str:
    if rules == (0,):
        return "no rule"
    *others, last = rules
    return f"rules {', '.join(map(str, others))} and {last}" if others else f"rule {last}"
