"""The exact CreateNode requests for each kind of slice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from google.cloud import tpu_v2

from tests.integration.tpu.slices import a_create, a_tpu_job
from tests.support.jobs import a_plan
from trainmaster.core.model.job import Job, Label
from trainmaster.core.model.purchase import PriceClass, Purchase, Reserved, Spot
from trainmaster.core.model.task_group import Tpu
from trainmaster.core.model.vm import LossCause as Loss
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.gcp.tpu_fleet.nodes import resource, vm_of
from trainmaster.gcp.vm_defaults import VmDefaults

DEFAULTS = VmDefaults(
    "my-project",
    "worker@my-project.iam.gserviceaccount.com",
    "global/networks/default",
    subnetwork="",
)


def labels_of(job: Job) -> dict[str, str]:
    return {
        "trainmaster-job": job_label(job.job_id),
        "trainmaster-task": "chief",
        "trainmaster-attempt": "1",
        "trainmaster-vm-generation": "1",
        "trainmaster-directive": "1-1-run",
    }


def a_node(job: Job, runtime: str, **changes: Any) -> tpu_v2.Node:
    """Return the expected node with the fields that all requests share."""
    node = tpu_v2.Node(
        runtime_version=runtime,
        network_config=tpu_v2.NetworkConfig(
            network="projects/my-project/global/networks/default", enable_external_ips=False
        ),
        scheduling_config=tpu_v2.SchedulingConfig(spot=False, reserved=False),
        service_account=tpu_v2.ServiceAccount(
            email="worker@my-project.iam.gserviceaccount.com",
            scope=["https://www.googleapis.com/auth/cloud-platform"],
        ),
        labels=labels_of(job),
        metadata={"key": "value"},
    )
    for name, value in changes.items():
        setattr(node, name, value)
    return node


@pytest.mark.parametrize(
    ("name", "runtime"),
    [
        ("v2-8", "tpu-ubuntu2204-base"),
        ("v3-32", "tpu-ubuntu2204-base"),
        ("v4-32", "tpu-ubuntu2204-base"),
        ("v5litepod-1", "v2-alpha-tpuv5-lite"),
        ("v5litepod-8", "v2-alpha-tpuv5-lite"),
        ("v5litepod-16", "v2-alpha-tpuv5-lite"),
        ("v5p-8", "v2-alpha-tpuv5"),
        ("v6e-8", "v2-alpha-tpuv6e"),
        ("v6e-16", "v2-alpha-tpuv6e"),
    ],
)
def test_request_has_the_accelerator_type(name: str, runtime: str) -> None:
    job = a_tpu_job(Tpu(name, runtime))
    assert resource(job, a_create(job), DEFAULTS, {"key": "value"}) == a_node(
        job, runtime, accelerator_type=name
    )


@pytest.mark.parametrize(
    ("tpu", "kind"),
    [
        (Tpu("v4-64", "r", topology="4x4x2"), tpu_v2.AcceleratorConfig.Type.V4),
        (Tpu("v5litepod-16", "r", topology="2x8"), tpu_v2.AcceleratorConfig.Type.V5LITE_POD),
        (Tpu("v5p-1024", "r", topology="4x8x16"), tpu_v2.AcceleratorConfig.Type.V5P),
        (Tpu("v6e-16", "r", topology="2x8"), tpu_v2.AcceleratorConfig.Type.V6E),
    ],
)
def test_request_for_a_custom_topology_has_generation_and_topology(
    tpu: Tpu, kind: tpu_v2.AcceleratorConfig.Type
) -> None:
    job = a_tpu_job(tpu)
    shape = tpu_v2.AcceleratorConfig(type_=kind, topology=tpu.topology)
    assert resource(job, a_create(job), DEFAULTS, {"key": "value"}) == a_node(
        job, "r", accelerator_config=shape
    )


def test_topology_of_an_unknown_generation_is_an_error() -> None:
    job = a_tpu_job(Tpu("v9-16", "r", topology="2x8"))
    with pytest.raises(ValueError, match="v9-16 is not a known type of TPU"):
        resource(job, a_create(job), DEFAULTS, {})


@pytest.mark.parametrize(
    ("price", "scheduling"),
    [
        (Spot(), tpu_v2.SchedulingConfig(spot=True, reserved=False)),
        (Reserved("ours"), tpu_v2.SchedulingConfig(spot=False, reserved=True)),
        (Spot(1, Reserved("ours")), tpu_v2.SchedulingConfig(spot=True, reserved=False)),
    ],
)
def test_spot_precedes_a_reservation(
    price: PriceClass, scheduling: tpu_v2.SchedulingConfig
) -> None:
    job = a_tpu_job(purchase=Purchase(price))
    node = resource(job, a_create(job), DEFAULTS, {"key": "value"})
    kind = {"accelerator_type": "v5litepod-16", "scheduling_config": scheduling}
    assert node == a_node(job, "v2-alpha-tpuv5-lite", **kind)


@pytest.mark.parametrize(
    ("plan", "defaults", "network"),
    [
        (
            {},
            VmDefaults(
                "p",
                service_account="",
                network="global/networks/n",
                subnetwork="regions/{region}/subnetworks/s",
            ),
            tpu_v2.NetworkConfig(
                network="projects/p/global/networks/n",
                subnetwork="projects/p/regions/us-central1/subnetworks/s",
            ),
        ),
        (
            {"network": "projects/host/global/networks/shared"},
            VmDefaults(
                "p",
                service_account="",
                network="global/networks/n",
                subnetwork="regions/r/subnetworks/s",
            ),
            tpu_v2.NetworkConfig(network="projects/host/global/networks/shared"),
        ),
        (
            {"network": "projects/123456789012/global/networks/n"},
            VmDefaults(
                "p",
                service_account="",
                network="projects/p/global/networks/n",
                subnetwork="regions/{region}/subnetworks/s",
            ),
            tpu_v2.NetworkConfig(
                network="projects/123456789012/global/networks/n",
                subnetwork="projects/p/regions/us-central1/subnetworks/s",
            ),
        ),
        (
            {"network": "projects/p/global/networks/wall"},
            VmDefaults(
                "p",
                service_account="",
                network="n",
                subnetwork="s",
                account_networks={"finance@p.iam.gserviceaccount.com": "wall"},
            ),
            tpu_v2.NetworkConfig(
                network="projects/p/global/networks/wall",
                subnetwork="projects/p/regions/us-central1/subnetworks/wall-us-central1",
            ),
        ),
        (
            {"service_account": "finance@p.iam.gserviceaccount.com"},
            VmDefaults(
                "p",
                service_account="",
                network="n",
                subnetwork="s",
                account_networks={"finance@p.iam.gserviceaccount.com": "wall"},
            ),
            tpu_v2.NetworkConfig(
                network="projects/p/global/networks/wall",
                subnetwork="projects/p/regions/us-central1/subnetworks/wall-us-central1",
            ),
        ),
        (
            {
                "service_account": "finance@p.iam.gserviceaccount.com",
                "network": "projects/host/global/networks/shared",
            },
            VmDefaults(
                "p",
                service_account="",
                network="n",
                subnetwork="s",
                account_networks={"finance@p.iam.gserviceaccount.com": "wall"},
            ),
            tpu_v2.NetworkConfig(network="projects/host/global/networks/shared"),
        ),
    ],
    ids=[
        "network and subnetwork of the installation",
        "network of another project",
        "network of the installation by its project's number",
        "network of an account with one of its own",
        "account with a network of its own",
        "network of another project for such an account",
    ],
)
def test_network_is_the_jobs_or_the_installations(
    plan: dict[str, Any], defaults: VmDefaults, network: tpu_v2.NetworkConfig
) -> None:
    job = a_tpu_job(**plan)
    assert resource(job, a_create(job), defaults, {}).network_config == network


def test_request_has_the_jobs_service_account_and_valid_labels() -> None:
    labels = (Label("team", "vision"), Label("Not-Legal", "x"), Label("trainmaster-job", "y"))
    job = replace(
        a_tpu_job(service_account="own@my-project.iam.gserviceaccount.com"), labels=labels
    )
    node = resource(job, a_create(job), DEFAULTS, {})
    assert node.service_account.email == "own@my-project.iam.gserviceaccount.com"
    assert dict(node.labels) == {"team": "vision", **labels_of(job)}
    without_account = a_tpu_job()
    assert not resource(
        without_account,
        a_create(without_account),
        VmDefaults("p", service_account="", network="n", subnetwork=""),
        {},
    ).service_account.email


STATES = {
    "STATE_UNSPECIFIED": (VmStatus.CREATING, Loss.GONE),
    "CREATING": (VmStatus.CREATING, Loss.GONE),
    "READY": (VmStatus.RUNNING, Loss.GONE),
    "RESTARTING": (VmStatus.CREATING, Loss.GONE),
    "REIMAGING": (VmStatus.CREATING, Loss.GONE),
    "DELETING": (VmStatus.STOPPING, Loss.GONE),
    "REPAIRING": (VmStatus.CREATING, Loss.GONE),
    "STOPPED": (VmStatus.STOPPED, Loss.GONE),
    "STOPPING": (VmStatus.STOPPING, Loss.GONE),
    "STARTING": (VmStatus.CREATING, Loss.GONE),
    "PREEMPTED": (VmStatus.STOPPED, Loss.PREEMPTION),
    "TERMINATED": (VmStatus.STOPPED, Loss.MAINTENANCE),
    "HIDING": (VmStatus.STOPPING, Loss.GONE),
    "HIDDEN": (VmStatus.STOPPED, Loss.GONE),
    "UNHIDING": (VmStatus.CREATING, Loss.GONE),
    "UNKNOWN": (VmStatus.STOPPED, Loss.HOST_ERROR),
}


@pytest.mark.parametrize("state", list(tpu_v2.Node.State), ids=lambda state: state.name)
def test_each_node_state_has_a_vm_status(state: tpu_v2.Node.State) -> None:
    """Covers all states of the client library, so that a new one fails here first."""
    node = tpu_v2.Node(
        name="projects/p/locations/z/nodes/tm-a-1234567890abcdef-chief-0", id=7, state=state
    )
    vm = vm_of(node)
    assert (vm.status, vm.loss, vm.is_tpu, vm.started_at) == (*STATES[state.name], True, None)


def test_only_plans_with_tpus_have_tpu_zones() -> None:
    assert a_tpu_job().plan.tpu_zones == ("us-central1-a", "us-west4-a")
    assert a_plan().tpu_zones == ()
