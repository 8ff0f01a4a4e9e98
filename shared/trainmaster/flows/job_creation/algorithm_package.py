"""Name the installation's package of built-in algorithms in the plan of a job that runs one.

The plan names the content by its hash, which the agent verifies. A job therefore runs the release that accepted it, and
no program can replace the package. docs/decisions/0081-built-in-algorithms.md.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Final

from trainmaster.core.model.package_uri import BUILT_IN, with_hash
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
    package = with_hash(uri, PurePosixPath(uri).parent.name)
    return replace(spec, plan=spec.plan.with_package_uris({BUILT_IN: package}))
