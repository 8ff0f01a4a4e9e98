"""docs/reasons.md, from reasons.yaml: `python -m tests.unit.docs.reasons_page` writes it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from trainmaster.core.decisions import Reason
from trainmaster.presentation.reasons import ReasonHelp, reasons_by_topic

PAGE: Final = Path(__file__).parents[3] / "docs" / "reasons.md"

_HEAD: Final = """# What happened to my job: reasons and remedies

Every decision about a job has a reason, which is one word. This page explains each of them. You find the reason of a
decision in four places:

- The last line of `trainmaster why JOB` names the reason that ended the job.
- The console shows it with each decision, as a link to its copy of this page.
- `trainmaster jobs ledger JOB` has it in each entry.
- The messages of the topic `trainmaster-job-state` have it in the field `reason` ([notifications](notifications.md)).
"""
_SYMPTOMS: Final = (
    (
        "The job FAILED, and the program's error is unclear",
        "`trainmaster logs JOB`, then [the reasons below](#the-job-failed-because-of-its-program)",
    ),
    ("`ModuleNotFoundError`, `ImportError`, pip fails", "{install_failed}"),
    ("`Killed`, exit status 137, `ran out of memory`", "{out_of_memory}"),
    ("`exited with status 2`, 126 or 127", "{common_error}"),
    ("SIGSEGV, SIGABRT, exit status 139 or 134", "{crash_signal}"),
    ("The program restarts again and again", "{non_zero_exit}, {restarts_spent}, {same_failure_again}"),
    ("A worker that did nothing wrong was restarted", "{member_failed}, {round_begins}"),
    ("A worker that had completed runs again", "{round_begins}"),
    (
        "`UnavailableError`, `Connection closed by peer`",
        "{member_failed}; the verdict on the round names the member that failed first",
    ),
    ("The job hangs", "{stalled}; [which programs are found](hung-programs.md)"),
    (
        "The job stays QUEUED",
        "`trainmaster why JOB` names the limit of the installation that it waits for ([settings](settings.md))",
    ),
    ("The job stays PREPARING", "{stockout}, {quota}, {queued}, {startup_timeout}"),
    ("`PERMISSION_DENIED`, a network or an image is not found", "{denied}"),
    ("`Internal error occurred for the current attempt`", "{internal_budget_spent}, {denied}, {vms_lost_early}"),
    ("Spot VMs are lost all the time", "{preemption}, {vms_lost_early}"),
    ("The job was CANCELLED, and no user cancelled it", "{max_running_time}, {max_wait_time}"),
    ("A trial has no result", "{trial_without_metric}, {trial_failed}"),
)
"""What users see, and what they read then. A reason in braces becomes a link."""
_REASON: Final = re.compile(r"{(\w+)}")
_LINK: Final = r"[\1](#\1)"
_TAIL: Final = """\
[rules.md](rules.md) has the rules in the order in which they are judged. The text below is in
[reasons.yaml](../shared/trainmaster/presentation/reasons.yaml). `python -m tests.unit.docs.reasons_page` writes it.
"""


def page() -> str:
    """Return the text of the page."""
    lines = [_HEAD, "| you see | read |", "| --- | --- |"]
    lines += [f"| {symptom} | {_REASON.sub(_LINK, answer)} |" for symptom, answer in _SYMPTOMS]
    lines += ["", _TAIL]
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
