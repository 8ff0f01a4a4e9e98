"""`runtimeVersion` and `pythonVersion` → the runtime a job gets, and what was substituted."""

from __future__ import annotations

import difflib
from dataclasses import replace
from typing import Final

from shared.core.model.job import Substitution
from shared.jobspec.catalog.runtimes import PAST_PYTHONS, PAST_RUNTIMES, RUNTIME_DEFAULT, RUNTIMES, TPU_PYTHON, Runtime
from shared.jobspec.formats.ai_platform import TrainingInput
from shared.jobspec.reading.document_kinds import TRAINING_INPUT
from shared.jobspec.reading.problems import Findings, Loc, given

RUNTIME_AT: Final[Loc] = (TRAINING_INPUT, "runtimeVersion")
PYTHON_AT: Final[Loc] = (TRAINING_INPUT, "pythonVersion")


def resolve_runtime(
    training: TrainingInput, found: Findings, substitutions: list[Substitution], *, on_tpu: bool
) -> Runtime:
    """Today's runtime for the asked one. No runtimeVersion: the current default, and nothing was substituted."""
    asked = training.runtime_version or RUNTIME_DEFAULT
    past = PAST_RUNTIMES.get(asked)
    if past is None and asked not in RUNTIMES:
        near = difflib.get_close_matches(asked, RUNTIMES, n=1, cutoff=0.5) or [RUNTIME_DEFAULT]
        known = f"{', '.join(RUNTIMES)}; of the past ones {', '.join(PAST_RUNTIMES)}"
        found.add(RUNTIME_AT, f"is not a known runtime version: {given(asked)} (known: {known})", near[0])
        return RUNTIMES[RUNTIME_DEFAULT]
    version = past.replaced_by if past else asked
    runtime = runtime_of(version, RUNTIME_AT, found, on_tpu=on_tpu)
    if past or (on_tpu and training.runtime_version):
        now = name_of(version, runtime)
        ended = f"Runtime version {asked} ended with AI Platform Training; today's of its kind is {now}."
        why = ended if past else f"Runtime {asked} has a build of its own for TPUs."
        substitutions.append(Substitution(found.path(RUNTIME_AT), asked, now, why))
    pythons = past.pythons if past else (RUNTIMES[version].python, *PAST_PYTHONS)
    check_python(training.python_version, pythons, runtime, found, substitutions)
    return runtime


def runtime_of(version: str, at: Loc, found: Findings, *, on_tpu: bool) -> Runtime:
    """A version of the table, as it is on a TPU VM where `on_tpu`. `at`: where the job says that it wants this one."""
    runtime = RUNTIMES[version]
    if not on_tpu:
        return runtime
    if not runtime.tpu_packages:
        able = next(version for version, each in RUNTIMES.items() if each.tpu_packages)
        found.add(at, f"is {runtime.name}, which does not run on TPUs", able)
    return replace(runtime, python=TPU_PYTHON, packages=runtime.tpu_packages)


def name_of(version: str, runtime: Runtime) -> str:
    """What is given for a version: itself, or its build for TPUs."""
    return version if runtime == RUNTIMES[version] else " ".join(runtime.packages)


def check_python(
    asked: str | None,
    allowed: tuple[str, ...],
    runtime: Runtime,
    found: Findings,
    substitutions: list[Substitution],
) -> None:
    if asked is None or asked == runtime.python or found.doubtful(RUNTIME_AT):
        return
    if asked in allowed:
        why = f"The runtime {runtime.name} comes with Python {runtime.python} and no other."
        substitutions.append(Substitution(found.path(PYTHON_AT), asked, runtime.python, why))
    else:
        problem = f"does not go with this runtime version: {given(asked)} (it came with {' or '.join(allowed)})"
        found.add(PYTHON_AT, problem, runtime.python)
