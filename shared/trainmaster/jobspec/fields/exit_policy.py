"""`trainmaster.exitPolicy`: what exit codes lead to, before any other rule.

An exit code may end the job as failed, rerun the job, or restart the replica.

exitPolicy:
  preset: restart            # default, service, restart: docs/rules.md
  fail: ["3", "64-74"]       # exit codes; a program killed by signal N exits with 128 + N
  rerun: ["75"]
  restart: ["ps:2"]          # only of this task type
  pauses: false              # restart at once, also after quick failures
  window: 21600s             # older restarts do not count
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from trainmaster.core.model.replica_id import TaskType
from trainmaster.jobspec.formats.extension import ExitPolicySpec
from trainmaster.jobspec.problems import Problems, quoted
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.jobspec.reading.read_model import read_model, with_lists

CODE_MAX: Final = 255
"""The largest exit code of a process."""
_PATH: Final = (EXTENSION, "exitPolicy")
_CODES: Final = re.compile(
    r"(?:(?P<task_type>[a-z]+):)?(?P<first>[0-9]{1,3})(?:-(?P<last>[0-9]{1,3}))?"
)


def resolve_exit_policy(spec: ExitPolicySpec, problems: Problems) -> ExitPolicy:
    """Return the policy, and add the problems of its rules to `problems`."""
    rules: list[ExitRule] = []
    for action, items in (
        (ExitAction.FAIL, spec.fail),
        (ExitAction.RERUN, spec.rerun),
        (ExitAction.RESTART, spec.restart),
    ):
        for index, item in enumerate(items):
            path = (*_PATH, action.value, index)
            rule = _parse_rule(item, action)
            if rule is None:
                problem = (
                    f"must be an exit code from 1 to {CODE_MAX}, or a range of them, not"
                    f" {quoted(item)}"
                )
                problems.add(path, problem, example="worker:64-80")
                continue
            earlier = _find_overlap(rule, rules)
            if earlier is not None:
                problems.add(
                    path, f"{quoted(item)} is already in `{earlier.action}`", example="137"
                )
            else:
                rules.append(rule)
    return ExitPolicy(
        spec.preset or Preset.DEFAULT, tuple(rules), pauses=spec.pauses, window_s=spec.window
    )


def read_exit_policy(document: Mapping[str, object]) -> ExitPolicy:
    """Read a policy outside a job, as `replay --policy` does: the block alone, with its name, or in
    a job file, of which nothing else is read.

    Raises InvalidJob with every problem.
    """
    extension = document.get(EXTENSION, document)
    block = extension
    if isinstance(extension, Mapping):  # else `read_model` refuses it
        block = extension.get("exitPolicy", {} if EXTENSION in document else extension)
    problems = Problems()
    job = read_model(with_lists({EXTENSION: {"exitPolicy": block}}), problems)
    policy = resolve_exit_policy(job.trainmaster.exit_policy, problems)
    problems.raise_if_any()
    return policy


def _parse_rule(item: str, action: ExitAction) -> ExitRule | None:
    """Return the rule of `worker:64-80`; None: it is not legal."""
    match = _CODES.fullmatch(item.strip())
    if match is None:
        return None
    first = int(match["first"])
    last = int(match["last"] or first)
    task_type = match["task_type"]
    is_range = 1 <= first <= last <= CODE_MAX
    is_known_type = not task_type or task_type in set(TaskType)
    if not is_range or not is_known_type:
        return None
    return ExitRule(first, last, action, (TaskType(task_type),) if task_type else ())


def _find_overlap(rule: ExitRule, earlier_rules: Iterable[ExitRule]) -> ExitRule | None:
    """Return an earlier rule that applies to some of the same exits.

    Rules of different task types do not overlap.
    """
    for earlier in earlier_rules:
        shares_codes = rule.first <= earlier.last and earlier.first <= rule.last
        shares_types = (
            not rule.task_types
            or not earlier.task_types
            or set(rule.task_types) & set(earlier.task_types)
        )
        if shares_codes and shares_types:
            return earlier
    return None
