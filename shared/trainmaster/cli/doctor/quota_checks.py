"""Checks of Compute Engine's quotas: whether a first job fits, and which jobs cannot run at all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from trainmaster.cli.doctor.findings import Finding, limit, not_checked, ok, problem
from trainmaster.gcp.tools.inspected_resources import Quota
from trainmaster.gcp.tools.inspection import Inspection
from trainmaster.jobspec.machines.vm_hardware import DISK_GIB_DEFAULT

FIRST_JOB: Final = {"CPUS": 12, "CPUS_ALL_REGIONS": 12, "SSD_TOTAL_GB": 300, "INSTANCES": 3}
"""Quotas for the main example, `examples/digits`: three n1-standard-4 with disks of 100 GB."""
GPUS: Final = 8
"""GPUs to request where there are none."""
_SHOWN: Final = (
    "CPUS",
    "CPUS_ALL_REGIONS",
    "GPUS",
    "GPUS_ALL_REGIONS",
    "INSTANCES",
    "DISKS_TOTAL_GB",
    "SSD_TOTAL_GB",
)
"""Suffixes of the metrics that VMs of jobs consume."""
_OTHER_TERMS: Final = ("PREEMPTIBLE_", "COMMITTED_")
"""Prefixes of metrics whose 0 keeps no job from running.

Spot VMs use the ordinary quota where there is no preemptible one. Source: "Allocation quotas" of
Compute Engine.
"""


def check_quotas(inspection: Inspection, region: str | None) -> Iterator[Finding]:
    """Check the quotas of the project and of the region in which jobs run."""
    yield from _check(inspection.project, region="", quotas=inspection.project_quotas())
    if region is None:
        yield not_checked("quotas of a region", "--region is not given")
        return
    quotas = inspection.quotas(region)
    if quotas is None:
        yield problem(f"there is no region {region}", "choose one of `gcloud compute regions list`")
    elif not quotas:
        yield not_checked(
            f"quotas of {region}", "Compute Engine reports none (the local stack has none)"
        )
    else:
        yield from _check(inspection.project, region, quotas)


def _check(project: str, region: str, quotas: Sequence[Quota]) -> Iterator[Finding]:
    """Check the quotas of a region, or, with an empty region, of the project."""
    where = f" in {region}" if region else " in all regions together"
    absent = []
    for quota in quotas:
        if not quota.metric.endswith(_SHOWN):
            continue
        text = f"quota {quota.metric}{where}: {quota.used:g} of {quota.limit:g}"
        needed = FIRST_JOB.get(quota.metric, 0)
        if not quota.limit and not needed:
            if _limits_by_absence(quota.metric):
                absent.append(quota.metric)
        elif quota.limit - quota.used < max(needed, 1):
            if needed:
                text += f"; a first job needs {needed}"
            value = max(2 * quota.limit, quota.used + needed)
            yield problem(
                text,
                "end jobs there, or request more:"
                f" `{_request(project, region, quota.metric, value)}`",
            )
        else:
            yield ok(f"{text}{_default_disks(quota)}")
    if absent:
        command = _request(project, region, absent[0], GPUS)
        yield limit(
            f"jobs that need {' or '.join(absent)} wait indefinitely: these quotas are 0{where}",
            f"request one if you need it, which takes up to two days: `{command}`",
        )


def _limits_by_absence(metric: str) -> bool:
    """Return whether jobs wait indefinitely if the quota is 0."""
    is_of_gpus = metric.endswith(("GPUS", "GPUS_ALL_REGIONS"))
    return is_of_gpus and not metric.startswith(_OTHER_TERMS)


def _default_disks(quota: Quota) -> str:
    if quota.metric != "SSD_TOTAL_GB":
        return ""
    replicas = int((quota.limit - quota.used) // DISK_GIB_DEFAULT)
    return f" (enough for {replicas} replicas with default disks)"


def _request(project: str, region: str, metric: str, value: float) -> str:
    """Return the command that requests a higher quota.

    Source of the ids: the Cloud Quotas API, such as CPUS-per-project-region and
    GPUS-ALL-REGIONS-per-project.
    """
    quota_id = f"{metric.replace('_', '-')}-per-project"
    dimensions = ""
    if region:
        quota_id += "-region"
        dimensions = f" --dimensions region={region}"
    return (
        f"gcloud services enable cloudquotas.googleapis.com --project {project} && gcloud beta"
        " quotas preferences create --service compute.googleapis.com"
        f" --project {project} --billing-project {project}"
        f" --quota-id {quota_id} --preferred-value {value:g}{dimensions}"
    )
