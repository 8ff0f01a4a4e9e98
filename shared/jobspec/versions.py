"""`runtimeVersion` and `pythonVersion` → the runtime a job gets, and what was substituted."""

from __future__ import annotations

import difflib
from typing import Final

from shared.core.jobs import Substitution
from shared.core.seats import TaskType
from shared.jobspec.model import TrainingInput
from shared.jobspec.problems import Findings, Loc, given
from shared.jobspec.reading import TRAINING_INPUT
from shared.jobspec.runtimes import PAST_PYTHONS, PAST_RUNTIMES, RUNTIME_DEFAULT, RUNTIMES, Runtime

_RUNTIME_AT: Final[Loc] = (TRAINING_INPUT, "runtimeVersion")
_PYTHON_AT: Final[Loc] = (TRAINING_INPUT, "pythonVersion")


def resolve_runtime(training: TrainingInput, found: Findings, substitutions: list[Substitution]) -> Runtime:
    """Today's runtime for the asked one. No runtimeVersion: the current default, and nothing was substituted."""
    asked = training.runtime_version or RUNTIME_DEFAULT
    past = PAST_RUNTIMES.get(asked)
    if past is not None:
        runtime = RUNTIMES[past.replaced_by]
        why = f"Runtime version {asked} ended with AI Platform Training; today's of its kind is {past.replaced_by}."
        substitutions.append(Substitution(found.path(_RUNTIME_AT), asked, past.replaced_by, why))
        pythons = past.pythons
    elif asked in RUNTIMES:
        runtime, pythons = RUNTIMES[asked], (RUNTIMES[asked].python, *PAST_PYTHONS)
    else:
        runtime, pythons = RUNTIMES[RUNTIME_DEFAULT], ()
        near = difflib.get_close_matches(asked, RUNTIMES, n=1, cutoff=0.5) or [RUNTIME_DEFAULT]
        known = f"{', '.join(RUNTIMES)}; of the past ones {', '.join(PAST_RUNTIMES)}"
        found.add(_RUNTIME_AT, f"is not a known runtime version: {given(asked)} (known: {known})", near[0])
    _check_python(training.python_version, pythons, runtime, found, substitutions)
    return runtime


def _check_python(
    asked: str | None,
    allowed: tuple[str, ...],
    runtime: Runtime,
    found: Findings,
    substitutions: list[Substitution],
) -> None:
    if asked is None or asked == runtime.python or found.doubtful(_RUNTIME_AT):
        return
    if asked in allowed:
        why = f"The runtime {runtime.name} comes with Python {runtime.python}; Python {asked} is no longer maintained."
        substitutions.append(Substitution(found.path(_PYTHON_AT), asked, runtime.python, why))
    else:
        problem = f"does not go with this runtime version: {given(asked)} (it came with {' or '.join(allowed)})"
        found.add(_PYTHON_AT, problem, runtime.python)


def primary_type(training: TrainingInput) -> TaskType:
    """Source: release notes of March 2020: runtime 2.1 and newer say `chief` in TF_CONFIG, 1.15 and older `master`."""
    past = PAST_RUNTIMES.get(training.runtime_version or "")
    return TaskType.MASTER if past is not None and not past.has_chief else TaskType.CHIEF
