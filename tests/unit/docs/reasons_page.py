"""docs/reasons.md, from reasons.yaml: `python -m tests.unit.docs.reasons_page` writes it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trainmaster.core.decisions import Reason
from trainmaster.presentation.reasons import ReasonHelp, reasons_by_topic

PAGE: Final = Path(__file__).parents[3] / "docs" / "reasons.md"

_HEAD: Final = """# What happened to my job: reasons and remedies

Every decision about a job has a reason, which is one word. This page explains each of them.
You find the reason of a decision in four places:

- The last line of `trainmaster why JOB` names the reason that ended the job.
- The console shows it with each decision, as a link to its copy of this page.
- `trainmaster jobs ledger JOB` has it in each entry.
- The messages of the topic `trainmaster-job-state` have it in the field `reason`
  ([notifications](notifications.md)).

[Find out why a job failed](job-failed.md) leads from what you see to the reason.
"""
_TAIL: Final = """\
[rules.md](rules.md) has the rules in the order in which they are judged. The text below is in
[reasons.yaml](../shared/trainmaster/presentation/reasons.yaml).
`python -m tests.unit.docs.reasons_page` writes it.
"""


def page() -> str:
    """Return the text of the page."""
    lines = [_HEAD, _TAIL]
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


if __name__ == "__main__":
    PAGE.write_text(page().rstrip() + "\n", encoding="utf-8")
    sys.exit(0)
