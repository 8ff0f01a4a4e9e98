"""The hosts of a Cloud TPU slice: same metadata, one replica."""

from __future__ import annotations

import json

import pytest

from shared.agent.control.slice_hosts import HEARD_S, Parting, addresses_of
from shared.agent.control.vm_config import Host, Key
from shared.agent.program.environment import environment_of

from .support.cloud import Cloud
from .support.vm import NAME, Vm, replica_id

# As Cloud TPU writes it: a flat mapping, quoted.
TPU_ENV = (
    f"ACCELERATOR_TYPE: 'v4-16'\nNODE_ID: '{NAME}'\nTYPE: 'V4'\nUID: '650208'\nWORKER_ID: '1'\nZONE: 'us-central2-b'\n"
)
ENDPOINTS = "unknown:unknown:10.130.0.5,unknown:unknown:10.130.0.4"
SHOWS = "import json, os; print('ENV', json.dumps(dict(os.environ)))"


@pytest.fixture
def host(cloud: Cloud, vm: Vm) -> Vm:
    """The second host of two."""
    cloud.set("instance/name", "t1v-n-0c6f6a3e-w-1")
    cloud.set("instance/attributes/tpu-env", TPU_ENV)
    cloud.set("instance/attributes/agent-worker-number", "1")
    cloud.set("instance/attributes/worker-network-endpoints", ENDPOINTS)
    vm.program(SHOWS)
    vm.gang(hosts=2)
    return vm


def test_a_host_speaks_for_its_node_and_says_which_one_it_is(cloud: Cloud, host: Vm) -> None:
    cloud.direct(1, 1)
    host.boot()
    cloud.wait_for_message("replica-exit")
    for message in cloud.messages:
        assert (message.body["host"], message.body["task_index"]) == (1, 1)
        assert message.body["vm"] == {"name": NAME, "zone": "us-central1-a", "instance_id": "650208"}
    environment = json.loads(host.wait_for_line("ENV ")[4:])
    assert {name: value for name, value in environment.items() if "TPU" in name} == {
        "TPU_WORKER_ID": "1",
        "CLOUD_TPU_TASK_ID": "1",
        "TPU_WORKER_HOSTNAMES": "10.130.0.5,10.130.0.4",
    }
    assert environment["RANK"] == "4"  # one before the role, two of the first slice, one of this one


def test_ranks_are_without_gaps_over_replicas_and_hosts() -> None:
    ranks = [environment_of(replica_id(Host(number, ()), hosts=2), {})["RANK"] for number in range(2)]
    assert ranks == ["3", "4"]
    assert environment_of(replica_id(), {})["RANK"] == "2"


def test_the_hosts_of_the_first_slice_find_rank_0_by_its_address_and_others_by_what_the_gang_says() -> None:
    host = Host(1, ("10.130.0.5", "10.130.0.4"))
    first = environment_of(replica_id(host, hosts=2, rank_base=0, vm_names=[NAME]), {})
    assert (first["MASTER_ADDR"], first["RANK"]) == ("10.130.0.5", "1")
    by_name = environment_of(replica_id(), {})["MASTER_ADDR"]
    assert environment_of(replica_id(host, hosts=2, rank_base=0), {})["MASTER_ADDR"] == by_name, "the second slice"
    assert environment_of(replica_id(host, hosts=2, rank_base=4, vm_names=[NAME]), {})["MASTER_ADDR"] == by_name


def test_slices_of_one_job_are_told_where_they_are_by_the_directive_of_each_life(cloud: Cloud, host: Vm) -> None:
    first, second = "slice-0.trainmaster.internal", "slice-1.trainmaster.internal"
    host.gang(
        hosts=2,
        grace_s=0.1,
        slice_base=0,
        tf_config={"cluster": {"worker": [f"{first}:2222", f"{second}:2222"]}, "task": {"type": "worker"}},
        environment={"MASTER_ADDR": first, "MEGASCALE_COORDINATOR_ADDRESS": f"{first}:8080"},
        variables={"SAYS": first},
    )
    cloud.set(
        "instance/attributes/trainmaster-directive", json.dumps({"attempt": 1, "incarnation": 1, "action": "hold"})
    )
    host.boot()
    host.wait_for_line("[trainmaster] Directive: hold")
    assert not cloud.messages, "nothing begins while an address is missing"
    environments = []
    for subject, slices in ((1, ["10.0.0.1", "10.0.1.1"]), (2, ["10.0.0.1", "10.0.9.1"])):
        said = {"attempt": 1, "incarnation": subject, "action": "run", "slices": slices}
        cloud.set("instance/attributes/trainmaster-directive", json.dumps(said))
        cloud.wait_for_message("replica-exit", (1, subject))
        environments.append(json.loads(host.wait_for_line("ENV ", subject)[4:]))
    assert [json.loads(each["TF_CONFIG"])["cluster"]["worker"] for each in environments] == [
        ["10.0.0.1:2222", "10.0.1.1:2222"],
        ["10.0.0.1:2222", "10.0.9.1:2222"],
    ]
    for each in environments:
        assert (each["MASTER_ADDR"], each["MEGASCALE_COORDINATOR_ADDRESS"]) == ("10.0.0.1", "10.0.0.1:8080")
        assert (each["MEGASCALE_SLICE_ID"], each["SAYS"]) == ("1", first), "the job's own words are its own"


def test_a_slice_of_one_host_is_found_by_its_nodes_name_and_leaves_the_host_out(cloud: Cloud, host: Vm) -> None:
    host.gang(hosts=1)
    cloud.direct(1, 1)
    host.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert "host" not in body
    assert (body["vm"]["name"], body["task_index"]) == (NAME, 1)
    assert "TPU_WORKER_ID" not in json.loads(host.wait_for_line("ENV ")[4:])


def test_a_host_begins_the_next_life_when_no_other_host_can_still_run_the_last_one(cloud: Cloud, host: Vm) -> None:
    host.gang(hosts=2, grace_s=0.5)
    host.program("import sys, time; print('START', time.monotonic()); sys.exit(1)")
    booted = cloud.direct(1, 1)
    host.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    assert host.wait_for_number("START ") > booted
    directed = cloud.direct(1, 2)
    assert host.wait_for_number("START ", 2) - directed >= 0.5 + HEARD_S
    cloud.wait_for_message("vm-ready", (1, 2))


def test_each_life_after_the_first_is_waited_for_from_when_it_is_first_heard_of() -> None:
    now = 100.0
    parting = Parting(replica_id(Host(1, ()), hosts=2, grace_s=25).gang, lambda: now)
    parting.hears_of(Key(1, 1))
    assert parting.left_s == 0, "nobody has run before"
    parting.hears_of(Key(1, 2))
    now = 120.0
    parting.hears_of(Key(1, 2))  # held before, to be run now: what ran was ended when it was held
    assert parting.left_s == 10
    now = 131.0
    assert parting.left_s == 0
    parting.hears_of(Key(2, 1))
    assert parting.left_s == 30


def test_a_vm_waits_for_nobody() -> None:
    parting = Parting(replica_id(grace_s=25).gang, lambda: 100.0)
    parting.hears_of(Key(1, 2))
    assert parting.left_s == 0


def test_what_cloud_tpu_has_not_written_yet_is_waited_for(cloud: Cloud, host: Vm) -> None:
    cloud.set("instance/attributes/worker-network-endpoints", None)
    cloud.direct(1, 1)
    host.boot()
    host.wait_for_line("[trainmaster] The metadata server does not answer yet")
    cloud.set("instance/attributes/worker-network-endpoints", ENDPOINTS)
    cloud.wait_for_message("replica-exit")


def test_a_plain_vm_has_no_host(cloud: Cloud, vm: Vm) -> None:
    vm.program("")
    cloud.direct(1, 1)
    vm.boot()
    cloud.wait_for_message("replica-exit")
    assert not any("host" in message.body for message in cloud.messages)


def test_a_node_is_what_drives_a_tpu_that_runs_no_program_of_ours(cloud: Cloud, vm: Vm) -> None:
    """The job's own VM learns of it as on the service, from TPU_CONFIG."""
    node = json.dumps({"project": "p", "zone": "us-central1-b", "tpu_node_name": "n"})
    vm.program("import os; print('TPU', os.environ['TPU_CONFIG'])")
    vm.gang(environment={"TPU_CONFIG": node})
    cloud.direct(1, 1)
    vm.boot()
    assert vm.wait_for_line("TPU ") == f"TPU {node}"
    assert vm.wait_for_line("[trainmaster] Running task with arguments: ").endswith(f"--tpu_node={node}")


@pytest.mark.parametrize(("text", "addresses"), [("", ()), ("a:b:1.2.3.4", ("1.2.3.4",)), ("junk", ())])
def test_addresses_are_the_third_part_of_each_endpoint(text: str, addresses: tuple[str, ...]) -> None:
    assert addresses_of(text) == addresses
