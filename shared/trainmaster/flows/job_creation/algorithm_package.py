"""Name the installation's package of built-in algorithms in the plan of a job that runs one.

The plan names the content by its hash, which the agent verifies. A job therefore runs the release that accepted it, and
no program can replace the package. docs/decisions/0081-built-in-algorithms.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from trainmaster.core.model.package_uri import BUILT_IN, with_hash
from trainmaster.core.model.plan import Plan, Program
from trainmaster.jobspec import AcceptedSpec, InvalidJob, Problem

SETTING: Final = "TRAINMASTER_ALGORITHMS"


def with_algorithm_package(spec: AcceptedSpec, uri: str) -> AcceptedSpec:
    """Return the spec with a plan that names the package. `uri`: `gs://BUCKET/algorithms/SHA256/NAME.whl`.

    Raises InvalidJob if the installation has no package. The spec of a job without a built-in algorithm is returned
    unchanged.
    """
    if spec.plan.algorithm is None:
        return spec
    if not uri:
        problem = f"is {spec.plan.algorithm.name}, and this installation has no package of built-in algorithms"
        example = f"apply infra/ of this release again, which stores it and sets {SETTING}"
        raise InvalidJob((Problem("trainmaster.algorithm", problem, example),))
    return replace(spec, plan=_with_package(spec.plan, with_hash(uri, PurePosixPath(uri).parent.name)))


def _with_package(plan: Plan, uri: str) -> Plan:
    def with_uri(program: Program) -> Program:
        uris = (uri if package == BUILT_IN else package for package in program.package_uris)
        return replace(program, package_uris=tuple(uris))

    groups = (replace(group, program=with_uri(group.program)) if group.program else group for group in plan.groups)
    return replace(plan, program=with_uri(plan.program), groups=tuple(groups))
