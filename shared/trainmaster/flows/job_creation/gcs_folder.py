"""Refuse /gcs, or leave it out with a note, where this installation cannot give it to the programs
of a job.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from trainmaster.core.model.origin import Substitution
from trainmaster.core.model.plan import GcsFolder
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.job_creation.package_versions import programs_of
from trainmaster.jobspec.accept import AcceptedSpec
from trainmaster.jobspec.problems import InvalidJob, Problem

FIELD: Final = "trainmaster.gcs"
NO_GCSFUSE: Final = (
    "this installation has no gcsfuse (in infra/, the variable gcsfuse names it; the local stack"
    " needs /dev/fuse and the right to create mount namespaces)"
)
NO_CONTAINERS: Final = "the local stack gives it only to Python packages, not to containers"


def with_gcs_folder(spec: AcceptedSpec, deps: CreationDeps) -> AcceptedSpec:
    """Return the spec with a plan that this installation can run.

    Raises InvalidJob if the job needs /gcs.
    """
    plan = spec.plan
    has_containers = any(program.container for program in programs_of(plan))
    can_give = deps.gcsfuse and (deps.gcs_in_containers or not has_containers)
    if plan.access.gcs is GcsFolder.OFF or can_give:
        return spec
    reason = NO_CONTAINERS if deps.gcsfuse else NO_GCSFUSE
    if plan.access.gcs is GcsFolder.REQUIRED:
        example = "gs:// addresses, which the frameworks read and write themselves"
        raise InvalidJob(
            (
                Problem(
                    FIELD,
                    f"is true, or the job names a folder below /gcs/, and {reason}",
                    example=example,
                ),
            )
        )
    # IF_POSSIBLE: the job does not say whether it needs /gcs.
    note = Substitution(
        FIELD, requested="", replacement="false", reason=f"{reason}: a write below /gcs fails"
    )
    origin = replace(plan.origin, substitutions=(*plan.origin.substitutions, note))
    access = replace(plan.access, gcs=GcsFolder.OFF)
    return replace(spec, plan=replace(plan, access=access, origin=origin))
