"""The hosts of a Cloud TPU slice, which have the same metadata and make one replica.

The job of `agent_identity()` has one chief, and two workers: here, each worker is a slice of two
hosts. `rank_base` 1 is the rank of the first host of worker 0: those of worker 1 have 3 and 4.
"""

from __future__ import annotations

import json

import pytest

from trainmaster.agent.control.slice_hosts import addresses_of
from trainmaster.agent.control.start_delay import DIRECTIVE_SKEW_MAX_S
from trainmaster.agent.model.vm_config import SliceHost
from trainmaster.agent.program.environment import environment_of

from .support.cloud import Cloud
from .support.vm import NAME, Vm, agent_identity

# A flat mapping with quoted text, as Cloud TPU writes it.
TPU_ENV = (
    f"ACCELERATOR_TYPE: 'v4-16'\nNODE_ID: '{NAME}'\nTYPE: 'V4'\nUID: '650208'\nWORKER_ID:"
    " '1'\nZONE: 'us-central2-b'\n"
)
ENDPOINTS = "unknown:unknown:10.130.0.5,unknown:unknown:10.130.0.4"
PRINTS_ENVIRONMENT = "import json, os; print('ENV', json.dumps(dict(os.environ)))"


@pytest.fixture
def host(cloud: Cloud, vm: Vm) -> Vm:
    """The second host of two."""
    cloud.set("instance/name", "t1v-n-0c6f6a3e-w-1")
    cloud.set("instance/attributes/tpu-env", TPU_ENV)
    cloud.set("instance/attributes/agent-worker-number", "1")
    cloud.set("instance/attributes/worker-network-endpoints", ENDPOINTS)
    vm.program(PRINTS_ENVIRONMENT)
    vm.configure(hosts=2)
    return vm


def test_host_reports_its_node_and_its_number(cloud: Cloud, host: Vm) -> None:
    cloud.direct(attempt=1, incarnation=1)
    host.boot()
    cloud.wait_for_message("replica-exit")
    for message in cloud.messages:
        assert (message.body["host"], message.body["task_index"]) == (1, 1)
        assert message.body["vm"] == {
            "name": NAME,
            "zone": "us-central1-a",
            "instance_id": "650208",
        }
    environment = json.loads(host.wait_for_line("ENV ")[4:])
    assert {name: value for name, value in environment.items() if "TPU" in name} == {
        "TPU_WORKER_ID": "1",
        "CLOUD_TPU_TASK_ID": "1",
        "TPU_WORKER_HOSTNAMES": "10.130.0.5,10.130.0.4",
    }
    # One replica before the role, two hosts of the first slice, one host of this slice.
    assert environment["RANK"] == "4"


def test_ranks_are_consecutive_over_replicas_and_hosts() -> None:
    ranks = [
        environment_of(agent_identity(SliceHost(number, addresses=()), hosts=2), {})["RANK"]
        for number in range(2)
    ]
    assert ranks == ["3", "4"]
    assert environment_of(agent_identity(), {})["RANK"] == "2"


def test_master_addr_is_an_address_in_the_first_slice_and_a_name_elsewhere() -> None:
    host = SliceHost(1, ("10.130.0.5", "10.130.0.4"))
    first = environment_of(agent_identity(host, hosts=2, rank_base=0, vm_names=[NAME]), {})
    assert (first["MASTER_ADDR"], first["RANK"]) == ("10.130.0.5", "1")
    by_name = environment_of(agent_identity(), {})["MASTER_ADDR"]
    second_slice = agent_identity(host, hosts=2, rank_base=0)
    assert environment_of(second_slice, {})["MASTER_ADDR"] == by_name
    later_role = agent_identity(host, hosts=2, rank_base=4, vm_names=[NAME])
    assert environment_of(later_role, {})["MASTER_ADDR"] == by_name


def test_slice_addresses_come_from_the_directive_of_each_incarnation(
    cloud: Cloud, host: Vm
) -> None:
    first, second = "slice-0.trainmaster.internal", "slice-1.trainmaster.internal"
    host.configure(
        hosts=2,
        grace_s=0.1,
        slice_base=0,
        tf_config={
            "cluster": {"worker": [f"{first}:2222", f"{second}:2222"]},
            "task": {"type": "worker"},
        },
        environment={"MASTER_ADDR": first, "MEGASCALE_COORDINATOR_ADDRESS": f"{first}:8080"},
        variables={"GREETING": first},
    )
    cloud.set(
        "instance/attributes/trainmaster-directive",
        json.dumps({"attempt": 1, "incarnation": 1, "action": "hold"}),
    )
    host.boot()
    cloud.wait_for_message("vm-ready", (1, 1))
    assert not host.lines("ENV "), "nothing starts while an address is missing"
    environments = []
    for incarnation, slices in ((1, ["10.0.0.1", "10.0.1.1"]), (2, ["10.0.0.1", "10.0.9.1"])):
        directive = {"attempt": 1, "incarnation": incarnation, "action": "run", "slices": slices}
        cloud.set("instance/attributes/trainmaster-directive", json.dumps(directive))
        cloud.wait_for_message("replica-exit", (1, incarnation))
        environments.append(json.loads(host.wait_for_line("ENV ", number=incarnation)[4:]))
    assert [
        json.loads(environment["TF_CONFIG"])["cluster"]["worker"] for environment in environments
    ] == [
        ["10.0.0.1:2222", "10.0.1.1:2222"],
        ["10.0.0.1:2222", "10.0.9.1:2222"],
    ]
    for environment in environments:
        assert (environment["MASTER_ADDR"], environment["MEGASCALE_COORDINATOR_ADDRESS"]) == (
            "10.0.0.1",
            "10.0.0.1:8080",
        )
        assert (environment["MEGASCALE_SLICE_ID"], environment["GREETING"]) == (
            "1",
            first,
        ), "the job's own variables are unchanged"


def test_slice_of_one_host_reports_no_host_number(cloud: Cloud, host: Vm) -> None:
    host.configure(hosts=1)
    cloud.direct(attempt=1, incarnation=1)
    host.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert "host" not in body
    assert (body["vm"]["name"], body["task_index"]) == (NAME, 1)
    assert "TPU_WORKER_ID" not in json.loads(host.wait_for_line("ENV ")[4:])


def test_next_incarnation_starts_when_all_hosts_have_stopped_the_previous(
    cloud: Cloud, host: Vm
) -> None:
    host.configure(hosts=2, grace_s=0.5)
    host.program("import sys, time; print('START', time.monotonic()); sys.exit(1)")
    booted = cloud.direct(attempt=1, incarnation=1)
    host.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    assert host.wait_for_number("START ") > booted
    directed = cloud.direct(attempt=1, incarnation=2)
    assert host.wait_for_number("START ", number=2) - directed >= 0.5 + DIRECTIVE_SKEW_MAX_S
    cloud.wait_for_message("vm-ready", (1, 2))


def test_incarnation_starts_at_once_when_all_hosts_have_reported_their_stop(
    cloud: Cloud, host: Vm
) -> None:
    host.configure(hosts=2, grace_s=60)
    host.program("import sys, time; print('START', time.monotonic()); sys.exit(1)")
    cloud.direct(attempt=1, incarnation=1)
    host.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    cloud.direct(attempt=1, incarnation=2, action="hold")
    cloud.wait_for_message("vm-ready", (1, 2))
    directed = cloud.direct(attempt=1, incarnation=2)
    assert host.wait_for_number("START ", number=2) - directed < 30


def test_missing_slice_attributes_are_awaited(cloud: Cloud, host: Vm) -> None:
    cloud.set("instance/attributes/worker-network-endpoints", None)
    cloud.direct(attempt=1, incarnation=1)
    host.boot()
    host.wait_for_line("[trainmaster] The metadata server does not answer yet")
    cloud.set("instance/attributes/worker-network-endpoints", ENDPOINTS)
    cloud.wait_for_message("replica-exit")


def test_events_of_a_plain_vm_have_no_host(cloud: Cloud, vm: Vm) -> None:
    vm.program("")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("replica-exit")
    assert not any("host" in message.body for message in cloud.messages)


def test_vm_that_drives_a_tpu_node_gets_tpu_config(cloud: Cloud, vm: Vm) -> None:
    """The job's VM gets the node in TPU_CONFIG, as on AI Platform Training."""
    node = json.dumps({"project": "p", "zone": "us-central1-b", "tpu_node_name": "n"})
    vm.program("import os; print('TPU', os.environ['TPU_CONFIG'])")
    vm.configure(environment={"TPU_CONFIG": node})
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert vm.wait_for_line("TPU ") == f"TPU {node}"
    assert vm.wait_for_line("[trainmaster] Running task with arguments: ").endswith(
        f"--tpu_node={node}"
    )


@pytest.mark.parametrize(
    ("text", "addresses"), [("", ()), ("a:b:1.2.3.4", ("1.2.3.4",)), ("junk", ())]
)
def test_addresses_are_parsed_from_endpoints(text: str, addresses: tuple[str, ...]) -> None:
    assert addresses_of(text) == addresses
