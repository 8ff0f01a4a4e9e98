"""`trainmaster.exitPolicy`: which exit codes end the job, rerun it, or restart the replica, whatever the rules say.

exitPolicy:
  preset: restart            # default, service, restart: docs/rules.md
  fail: ["3", "64-80"]       # exit codes; a signal N is 128 + N
  rerun: ["75"]
  restart: ["ps:2"]          # a task type before them narrows it down
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from shared.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from shared.core.model.replica_id import TaskType
from shared.jobspec.formats.extension import ExitPolicySpec
from shared.jobspec.reading.problems import Findings, InvalidJob, Spelling, given
from shared.jobspec.reading.read_model import read

AT: Final = ("trainmaster", "exitPolicy")
CODE_MAX: Final = 255
_CODES: Final = re.compile(r"(?:(?P<task_type>[a-z]+):)?(?P<first>[0-9]{1,3})(?:-(?P<last>[0-9]{1,3}))?")


def resolve_exit_policy(spec: ExitPolicySpec | None, found: Findings) -> ExitPolicy:
    if spec is None:
        return ExitPolicy()
    rules: list[ExitRule] = []
    for action, items in (
        (ExitAction.FAIL, spec.fail),
        (ExitAction.RERUN, spec.rerun),
        (ExitAction.RESTART, spec.restart),
    ):
        for index, item in enumerate(items or ()):
            at = (*AT, action.value, index)
            rule = _rule(item, action)
            if rule is None:
                problem = f"must be an exit code from 1 to {CODE_MAX}, or a range of them, not {given(item)}"
                found.add(at, problem, "worker:64-80")
            elif twice := _overlap(rule, rules):
                found.add(at, f"{given(item)} is in `{twice.action}` already", "137")
            else:
                rules.append(rule)
    return ExitPolicy(Preset((spec.preset or "DEFAULT").lower()), tuple(rules))


def _rule(item: str, action: ExitAction) -> ExitRule | None:
    match = _CODES.fullmatch(item.strip())
    if match is None:
        return None
    first = int(match["first"])
    last = int(match["last"] or first)
    named = match["task_type"]
    if not 1 <= first <= last <= CODE_MAX or (named and named not in set(TaskType)):
        return None
    return ExitRule(first, last, action, (TaskType(named),) if named else ())


def _overlap(rule: ExitRule, others: Iterable[ExitRule]) -> ExitRule | None:
    """A rule before it that some exit matches as well; a narrower one of another task type does not."""
    for other in others:
        shares_codes = rule.first <= other.last and other.first <= rule.last
        shares_types = not rule.task_types or not other.task_types or set(rule.task_types) & set(other.task_types)
        if shares_codes and shares_types:
            return other
    return None


def read_exit_policy(document: Mapping[str, object]) -> ExitPolicy:
    """A policy by itself, as `replay --policy` takes it. Raises InvalidJob with every problem."""
    probe = {"trainmaster": {"exitPolicy": dict(document)}}
    spelling = Spelling()
    found = Findings(spelling)
    job, whole = read(probe, spelling, found)
    policy = resolve_exit_policy(job.trainmaster.exit_policy if job.trainmaster else None, found)
    if problems := (*whole, *found.problems):
        raise InvalidJob(problems)
    return policy
