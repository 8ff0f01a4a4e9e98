"""From job files to request bodies: every kind of machine, in every way it is sold, against
Google's documents.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from google.cloud import compute_v1, tpu_v2
from google.protobuf import json_format

from tests.support.conformance.checker import Exchange, check
from trainmaster.core.model.job import Job, JobState
from trainmaster.core.model.vm import Directive, DirectiveAction
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.steps import Create
from trainmaster.flows.provisioning.vm_metadata import vm_metadata
from trainmaster.gcp.addresses import DnsAddresses
from trainmaster.gcp.compute_fleet import properties
from trainmaster.gcp.tpu_fleet import nodes, queued_resource_spec
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    LEGACY_MACHINES,
    N1_MACHINES,
    TPU_TYPES,
)
from trainmaster.jobspec.problems import InvalidJob

PROJECT: Final = "my-project"
DEFAULTS: Final = VmDefaults(
    PROJECT, "w@my-project.iam.gserviceaccount.com", "global/networks/n", "regions/{region}/s"
)
BASE: Final = {
    "scaleTier": "CUSTOM",
    "packageUris": ["gs://bucket/p-0.1.tar.gz"],
    "pythonModule": "t.task",
    "runtimeVersion": "2.21",
}
REGIONS: Final = (
    "us-central1",
    "us-west1",
    "us-central2",
    "us-east5",
    "europe-west4",
    "asia-east1",
    "us-east4",
)
MACHINES: Final = (
    *LEGACY_MACHINES,
    *N1_MACHINES,
    *BUILT_IN_GPUS,
    "n2-standard-8",
    "e2-standard-4",
    "c3-standard-8",
    "c4-standard-8",
    "n4-standard-8",
    "c3-standard-8-lssd",
)
SALES: Final[tuple[dict[str, Any], ...]] = (
    {},
    {"spot": "all"},
    {"reservation": "my-reservation"},
    {"queue": "flex_start"},
    {"image": "projects/p/global/images/family/with-an-older-driver"},
)
TPU_SALES: Final[tuple[dict[str, Any], ...]] = (
    *SALES[:-1],
    {"queue": "standard"},
    {"queue": "standard", "spot": "all"},
    {"queue": "standard", "reservation": "my-reservation"},
)
FIELDS: Final[dict[str, dict[str, Any]]] = {
    "key": {
        "encryptionConfig": {
            "kmsKeyName": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
        }
    },
    "network": {"network": "projects/123/global/networks/x"},
    "account": {"serviceAccount": "a@my-project.iam.gserviceaccount.com"},
    "times": {"scheduling": {"maxRunningTime": "604800s", "maxWaitTime": "3600s"}},
}


def bodies(training_input: dict[str, Any], sale: dict[str, Any]) -> Iterator[Exchange]:
    """Yield the calls that create the VMs and nodes of a job; none if the job file is refused."""
    document: dict[str, Any] = {"trainingInput": {**BASE, **training_input}}
    if sale:
        document["trainmaster"] = sale
    try:
        accepted = accept(document, default_job_id="job_1")
    except InvalidJob:
        return
    now = datetime.now(UTC)
    job = Job("job_1", accepted.spec_json, "x", accepted.plan, JobState.QUEUED, now)
    for group in job.plan.groups:
        replica_ids = tuple(
            replica_id
            for replica_id in job.plan.replica_ids
            if replica_id.task_type is group.task_type
        )
        names = tuple(vm_name(job.job_id, replica_id) for replica_id in replica_ids)
        directive = Directive(attempt=1, incarnation=1, action=DirectiveAction.RUN)
        create = Create(
            group,
            job.plan.where.zones[0],
            vm_generation=1,
            directive=directive,
            replica_ids=replica_ids,
            names=names,
            round=0,
            price=group.purchase.price,
        )
        metadata = vm_metadata(job, create, PROJECT, DnsAddresses(PROJECT), {"startup-script": "x"})
        yield from _calls(job, create, metadata)


def _calls(job: Job, create: Create, metadata: dict[str, str]) -> Iterator[Exchange]:
    parent = f"projects/{PROJECT}/locations/{create.zone}"
    if create.group.tpu is None:
        insert = compute_v1.BulkInsertInstanceResource.pb(
            properties.resource(job, create, DEFAULTS, metadata)
        )
        yield _post(
            f"/compute/v1/projects/{PROJECT}/zones/{create.zone}/instances/bulkInsert",
            query="",
            message=insert,
        )
        return
    node = nodes.resource(job, create, DEFAULTS, metadata)
    if not create.group.purchase.is_queued:
        yield _post(f"/v2/{parent}/nodes", "nodeId=n", tpu_v2.Node.pb(node))
        return
    queued = queued_resource_spec.request(parent, job, create, node)
    alpha = queued_resource_spec.alpha_request(queued, create.price, job.plan)
    if alpha is not None:
        body = json.dumps(alpha)
        yield Exchange(
            "POST", f"/v2alpha1/{parent}/queuedResources", "queuedResourceId=n", body, 200, "{}"
        )
    else:
        yield _post(
            f"/v2/{parent}/queuedResources", "queuedResourceId=n", tpu_v2.QueuedResource.pb(queued)
        )


def _post(path: str, query: str, message: Any) -> Exchange:
    return Exchange("POST", path, query, json_format.MessageToJson(message), 200, "{}")


def check_first_region(training_input: dict[str, Any], sales: tuple[dict[str, Any], ...]) -> None:
    """Check the bodies in the first of several regions that has what the job asks for."""
    for region in REGIONS:
        if exchanges := [
            exchange
            for sale in sales
            for exchange in bodies({"region": region, **training_input}, sale)
        ]:
            checked = [check(exchange) for exchange in exchanges]
            assert all(method_id for method_id, _ in checked)
            assert [fault for _, faults in checked for fault in faults] == []
            return
    raise AssertionError(f"no region accepts {training_input}")


@pytest.mark.parametrize("machine", MACHINES)
def test_body_for_each_machine_type_conforms(machine: str) -> None:
    check_first_region({"masterType": machine, "workerType": machine, "workerCount": 2}, SALES)


@pytest.mark.parametrize("gpu", GPU_COUNTS)
@pytest.mark.parametrize("runtime", ["2.21", "scikit-learn-1.9", "pytorch-2.9"])
def test_body_for_each_attached_gpu_and_runtime_conforms(gpu: str, runtime: str) -> None:
    accelerator = {"acceleratorConfig": {"type": gpu, "count": "2"}}
    check_first_region(
        {"masterType": "n1-standard-8", "masterConfig": accelerator, "runtimeVersion": runtime},
        SALES,
    )


@pytest.mark.parametrize("field", FIELDS.values(), ids=FIELDS)
def test_body_with_each_field_of_the_job_conforms(field: dict[str, Any]) -> None:
    check_first_region({"masterType": "n1-standard-4", **field}, SALES)


def is_sold(name: str, sale: dict[str, Any]) -> bool:
    old = ("TPU_V2", "TPU_V2_POD", "TPU_V3", "TPU_V3_POD", "TPU_V4_POD")
    return sale.get("queue") != "flex_start" or name not in old


@pytest.mark.parametrize(
    ("name", "sale"),
    [(name, sale) for name in TPU_TYPES for sale in TPU_SALES if is_sold(name, sale)],
)
def test_body_for_each_tpu_conforms(name: str, sale: dict[str, Any]) -> None:
    size = TPU_TYPES[name].sizes[0]
    accelerator = {"acceleratorConfig": {"type": name, "count": str(size)}}
    check_first_region({"masterType": "cloud_tpu", "masterConfig": accelerator}, (sale,))
