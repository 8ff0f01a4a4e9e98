"""The requests to Cloud TPU's queue: their fields, and the VM status of each of their states.

A request that waits is treated like a VM: it has the labels of the VM that it asks for. They name
the directive, what the agent of the VM is to do: attempt, incarnation and action.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from google.cloud import tpu_v2
from google.protobuf import duration_pb2

from tests.integration.tpu.slices import (
    ZONE,
    a_create,
    a_queued_job,
    parent,
)
from tests.support.jobs import START
from trainmaster.core.model.job import Job, JobState, Label
from trainmaster.core.model.label_rules import LABELS_MAX
from trainmaster.core.model.purchase import (
    FlexStart,
    PriceClass,
    Reserved,
    Spot,
)
from trainmaster.core.model.vm import VmStatus
from trainmaster.core.model.vm_names import job_label
from trainmaster.core.timeouts import FUSE_SLACK_S
from trainmaster.gcp.tpu_fleet.nodes import resource
from trainmaster.gcp.tpu_fleet.queued_resource_spec import alpha_request, request, vm_of
from trainmaster.gcp.vm_defaults import VmDefaults

WEEK_S = 7 * 24 * 3600
DEFAULTS = VmDefaults("p", service_account="", network="global/networks/default", subnetwork="")


def a_request(job: Job, **changes: Any) -> tpu_v2.QueuedResource:
    create = a_create(job, **changes)
    return request(parent(), job, create, resource(job, create, DEFAULTS, {"key": "value"}))


def test_request_has_exactly_these_fields() -> None:
    job = a_queued_job()
    labels = {
        "trainmaster-job": job_label(job.job_id),
        "trainmaster-task": "chief",
        "trainmaster-attempt": "1",
        "trainmaster-vm-generation": "1",
        "trainmaster-directive": "1-1-run",
        "trainmaster-round": "3",
    }
    node = tpu_v2.Node(
        accelerator_type="v5litepod-4",
        runtime_version="v2-alpha-tpuv5-lite",
        network_config=tpu_v2.NetworkConfig(network="projects/p/global/networks/default"),
        labels=labels,
        metadata={"key": "value"},
    )
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(
        parent=parent(), node_id=a_create(job).names[0], node=node
    )
    until = tpu_v2.QueuedResource.QueueingPolicy(
        valid_until_time=job.created_at + timedelta(hours=1)
    )
    expected = tpu_v2.QueuedResource(
        tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]), queueing_policy=until
    )
    assert a_request(job, round=3) == expected


def test_request_has_at_most_the_allowed_number_of_labels() -> None:
    job = replace(
        a_queued_job(), labels=tuple(Label(f"l{number:02}", "x") for number in range(LABELS_MAX))
    )
    labels = a_request(job, round=3).tpu.node_spec[0].node.labels
    assert (len(labels), labels["trainmaster-round"]) == (LABELS_MAX, "3")


@pytest.mark.parametrize(
    ("price", "tier", "reservation"),
    [
        (Spot(), "spot", ""),
        (Reserved("ours"), None, f"{parent()}/reservations/ours"),
        (
            Reserved("projects/q/reservations/theirs"),
            None,
            f"projects/q/locations/{ZONE}/reservations/theirs",
        ),
        (Spot(losses_max=1, then=Reserved("ours")), "spot", ""),
    ],
)
def test_request_has_tier_and_reservation_instead_of_the_node(
    price: PriceClass, tier: str | None, reservation: str
) -> None:
    queued = a_request(a_queued_job(price))
    assert tpu_v2.QueuedResource.pb(queued).WhichOneof("tier") == tier
    assert queued.reservation_name == reservation
    assert "scheduling_config" not in queued.tpu.node_spec[0].node


def test_request_is_valid_until_the_end_of_the_jobs_wait() -> None:
    running = replace(
        a_queued_job(), started_at=START + timedelta(minutes=5), state=JobState.RUNNING
    )
    assert a_request(running).queueing_policy.valid_until_time == START + timedelta(
        minutes=5, seconds=3600
    )
    week = duration_pb2.Duration(seconds=WEEK_S)
    policy = tpu_v2.QueuedResource.QueueingPolicy.pb(
        a_request(a_queued_job(max_wait_s=None)).queueing_policy
    )
    assert policy.valid_until_duration == week


@pytest.mark.parametrize(
    ("max_running_s", "vm_runs_s"),
    [
        pytest.param(7200, 7200 + FUSE_SLACK_S, id="two hours"),
        pytest.param(WEEK_S, WEEK_S, id="the longest that Cloud TPU allows"),
    ],
)
def test_flex_start_adds_the_fields_of_the_alpha_api(max_running_s: int, vm_runs_s: int) -> None:
    job = a_queued_job(max_running_s=max_running_s)
    body = alpha_request(a_request(job), FlexStart(), job.plan)
    assert body is not None
    assert body.pop("provisioningModel") == "FLEX_START"
    assert body.pop("runDuration") == {"maxRunDuration": f"{vm_runs_s}s"}
    assert body["tpu"]["nodeSpec"][0]["nodeId"] == a_create(job).names[0]
    assert set(body) == {"tpu", "queueingPolicy"}


STATES = {
    "STATE_UNSPECIFIED": VmStatus.QUEUED,
    "CREATING": VmStatus.QUEUED,
    "ACCEPTED": VmStatus.QUEUED,
    "PROVISIONING": VmStatus.QUEUED,
    "FAILED": VmStatus.REFUSED,
    "DELETING": VmStatus.STOPPING,
    "ACTIVE": VmStatus.STOPPED,
    "SUSPENDING": VmStatus.STOPPING,
    "SUSPENDED": VmStatus.STOPPED,
    "WAITING_FOR_RESOURCES": VmStatus.QUEUED,
}


@pytest.mark.parametrize(
    "state", list(tpu_v2.QueuedResourceState.State), ids=lambda state: state.name
)
def test_each_request_state_has_a_vm_status(state: tpu_v2.QueuedResourceState.State) -> None:
    """Covers all states of the client library, so that a new one fails here first.

    The request has no node; otherwise the node would be listed.
    """
    queued = tpu_v2.QueuedResource(
        name="projects/p/locations/z/queuedResources/tm-a-1234567890abcdef-chief-0",
        create_time=START,
        state=tpu_v2.QueuedResourceState(state=state),
    )
    vm = vm_of(queued)
    assert (vm.status, vm.is_tpu, vm.created_at) == (STATES[state.name], True, START)
    assert vm.instance_id == f"tm-a-1234567890abcdef-chief-0-queued-{int(START.timestamp() * 1000)}"
