"""Pin the packages of a job to what is stored when the job is accepted: generations, or the hash of
the algorithms.

A program of another job may be able to replace an object. Without the generation, every VM that
starts later would install the replacement. docs/decisions/0036-code-integrity.md. The package of
built-in algorithms is named by its hash, which the agent verifies: a job runs the release that
accepted it. docs/decisions/vms-and-programs.md#decision-81.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from trainmaster.core.intake.document_fields import field_with
from trainmaster.core.model.package_uri import BUILT_IN, has_generation, with_generation, with_hash
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Program
from trainmaster.jobspec.accept import AcceptedSpec
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.ports import ObjectForbiddenError, Objects

SETTING: Final = "TRAINMASTER_ALGORITHMS"
FORBIDDEN: Final = (
    "names {uri}, which this installation may not read. Add its bucket to worker_read_buckets in"
    " infra/, or grant roles/storage.objectViewer on it to the accounts of the functions upload,"
    " submit and api, or name its version: {uri}#GENERATION"
)


def with_generations(spec: AcceptedSpec, objects: Callable[[], Objects] | None) -> AcceptedSpec:
    """Return the spec with a plan that names the current generation of each package.

    A URI that has a generation is not looked up. Raises InvalidJob if a package does not exist or
    may not be read. `objects`: None leaves the plan unchanged; only tests without Cloud Storage do
    that.
    """
    if objects is None:
        return spec
    programs = programs_of(spec.plan)
    uris = dict.fromkeys(
        uri for program in programs for uri in program.package_uris if not has_generation(uri)
    )
    pinned: dict[str, str] = {}
    problems: list[Problem] = []
    for uri in uris:
        try:
            generation = objects().generation(uri)
        except ObjectForbiddenError:
            problems.append(_problem(spec, uri, FORBIDDEN.format(uri=uri)))
            continue
        if generation is None:
            problems.append(_problem(spec, uri, f"names {uri}, which does not exist"))
            continue
        pinned[uri] = with_generation(uri, generation)
    if problems:
        raise InvalidJob(problems)
    return replace(spec, plan=spec.plan.with_versions(pinned))


def programs_of(plan: Plan) -> list[Program]:
    """Return the program of the job, and those of its roles that have their own."""
    return [plan.program, *(group.program for group in plan.groups if group.program)]


def _problem(spec: AcceptedSpec, uri: str, text: str) -> Problem:
    field = field_with(uri, spec.spec_json, "packageUris")
    return Problem(field, text, example="upload the package first, and then submit the job")


def with_algorithm_package(spec: AcceptedSpec, uri: str) -> AcceptedSpec:
    """Return the spec with a plan that names the package.

    `uri`: `gs://BUCKET/algorithms/SHA256/NAME.whl`.

    Raises InvalidJob if the installation has no package. The spec of a job without a built-in
    algorithm is returned unchanged.
    """
    if spec.plan.origin.algorithm is None:
        return spec
    if not uri:
        problem = (
            f"is {spec.plan.origin.algorithm.name}, and this installation has no package of"
            " built-in algorithms"
        )
        example = f"apply infra/ of this release again, which stores it and sets {SETTING}"
        raise InvalidJob((Problem("trainmaster.algorithm", problem, example=example),))
    package = with_hash(uri, PurePosixPath(uri).parent.name)
    return replace(spec, plan=spec.plan.with_versions({BUILT_IN: package}))
