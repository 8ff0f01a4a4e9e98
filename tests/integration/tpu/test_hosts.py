"""The hosts of a slice: their metadata and processes, and faults of one host or of the slice."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from google.api_core import exceptions
from google.cloud import tpu_v2

from tests.integration.tpu.slices import ONE_HOST, RUNTIME, Slices, parent
from tests.support.stack import eventually

READ = """
instance="http://$GCE_METADATA_HOST/computeMetadata/v1/instance"
read_metadata() { curl -s -H 'Metadata-Flavor: Google' "$instance/$1"; }
"""
SHOW = f"""{READ}
for key in name zone network-interfaces/0/ip attributes/accelerator-type \
    attributes/agent-worker-number attributes/worker-network-endpoints \
    attributes/tpu-env attributes/user-key
do echo "$key=$(read_metadata $key | tr '\\n' '|')"; done
echo shown; sleep 600
"""
WRITE_NUMBER = f"""{READ}
number=$(read_metadata attributes/agent-worker-number)
curl -sf -X PUT --data "$number" -H 'Metadata-Flavor: Google' \
    "$instance/guest-attributes/trainer/number" && echo written
sleep 600
"""
WAIT_FOR_PREEMPTION = f"""{READ}
trap 'echo stopping; exit 0' TERM
until [ "$(read_metadata preempted)" = TRUE ]; do echo waiting; sleep 0.1; done
echo preempted; sleep 600 & wait
"""


def shown_values(log: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


def test_each_host_has_its_position_in_the_slice(slices: Slices) -> None:
    node = slices.run("pod", SHOW, metadata={"user-key": "value"})
    eventually(lambda: [("shown" in log) for log in slices.logs("pod")] == [True] * 4, 30)
    hosts = [shown_values(log) for log in slices.logs("pod")]
    endpoints = {host["attributes/worker-network-endpoints"] for host in hosts}
    assert len(endpoints) == 1, "all hosts have the same list"
    addresses = [endpoint.split(":")[2] for endpoint in endpoints.pop().split(",")]
    assert addresses == [endpoint.ip_address for endpoint in node.network_endpoints]
    assert len(set(addresses)) == 4
    for number, host in enumerate(hosts):
        assert host["attributes/agent-worker-number"] == str(number)
        assert host["attributes/accelerator-type"] == "v5litepod-16"
        assert host["attributes/user-key"] == "value"
        assert host["name"].endswith(f"-w-{number}")
        assert host["name"] != "pod", "Google chooses the name of a host's VM"
        assert host["network-interfaces/0/ip"] == addresses[number]
        assert host["zone"].endswith("/zones/us-central1-a")
        environment = yaml.safe_load(host["attributes/tpu-env"].replace("|", "\n"))
        assert environment["NODE_ID"] == "pod"
        assert environment["UID"] == str(node.id)
        assert environment["WORKER_ID"] == str(number)
        assert (environment["TOPOLOGY"], environment["HOST_BOUNDS"]) == ("4x4", "2,2,1")
        assert environment["CHIPS_PER_HOST_BOUNDS"] == "2,2,1"


def test_guest_attributes_of_the_hosts_are_read_by_worker(slices: Slices) -> None:
    node = slices.run("pod", WRITE_NUMBER, metadata={"enable-guest-attributes": "TRUE"})
    eventually(lambda: all("written" in log for log in slices.logs("pod")), 30)

    def read(path: str, *workers: str) -> list[dict[str, str]]:
        request = tpu_v2.GetGuestAttributesRequest(
            name=node.name, query_path=path, worker_ids=workers
        )
        hosts = slices.client.get_guest_attributes(request).guest_attributes
        assert {host.query_path for host in hosts} == {path}
        return [
            {f"{item.namespace}/{item.key}": item.value for item in host.query_value.items}
            for host in hosts
        ]

    assert read("trainer/number", "2") == [{"trainer/number": "2"}]
    assert read("trainer/", "1", "3") == [{"trainer/number": "1"}, {"trainer/number": "3"}]
    assert read("") == [{"trainer/number": str(number)} for number in range(4)]
    assert read("trainer/other", "0") == [{}]
    with pytest.raises(exceptions.BadRequest, match="Invalid worker ids: 4"):
        read("", "4")


@pytest.mark.parametrize(
    ("kind", "topology", "hosts", "chips", "bounds"),
    [
        ("v5litepod-1", "1x1", 1, "1,1,1", "1,1,1"),
        ("v5litepod-8", "2x4", 1, "2,4,1", "1,1,1"),
        ("v5p-16", "2x2x2", 2, "2,2,1", "1,1,2"),
    ],
)
def test_slice_has_the_hosts_of_its_type(
    slices: Slices, kind: str, topology: str, hosts: int, chips: str, bounds: str
) -> None:
    node = slices.run("slice", SHOW, accelerator_type=kind)
    assert node.accelerator_config.topology == topology
    assert len(node.network_endpoints) == hosts
    eventually(lambda: all("shown" in log for log in slices.logs("slice")), 30)
    environment = yaml.safe_load(
        shown_values(slices.logs("slice")[0])["attributes/tpu-env"].replace("|", "\n")
    )
    assert (environment["CHIPS_PER_HOST_BOUNDS"], environment["HOST_BOUNDS"]) == (chips, bounds)


def test_preemption_reaches_each_host_and_keeps_the_node(slices: Slices) -> None:
    slices.run("pod", WAIT_FOR_PREEMPTION)
    eventually(lambda: [("waiting" in log) for log in slices.logs("pod")] == [True] * 4, 30)
    slices.fault("pod", "preempt", notice_s=20)
    eventually(lambda: slices.state("pod") == "PREEMPTED", 30)
    for log in slices.logs("pod"):
        assert "stopping" in log
    assert slices.get("pod").health.name == "HEALTHY"


def test_creation_of_a_node_that_is_preempted_meanwhile_fails_and_the_node_stays(
    slices: Slices,
) -> None:
    slices.compute.faults(slow_s=0.5)
    node = tpu_v2.Node(accelerator_type=ONE_HOST.type, runtime_version=RUNTIME)
    creation = slices.client.create_node(parent=parent(), node_id="early", node=node)
    slices.fault("early", "preempt")
    operation = slices.done(creation)
    assert "while in state PREEMPTED" in operation.error.message
    assert slices.state("early") == "PREEMPTED"
    slices.done(slices.client.delete_node(name=f"{parent()}/nodes/early"))
    assert slices.state("early") == "DELETED"


def test_maintenance_ends_the_whole_slice(slices: Slices) -> None:
    slices.run("pod", "trap 'exit 0' TERM; sleep 600 & wait", tpu=ONE_HOST)
    slices.fault("pod", "maintenance", notice_s=0.1)
    eventually(lambda: slices.state("pod") == "TERMINATED", 30)
    assert slices.get("pod").health.name == "UNHEALTHY_MAINTENANCE"


def test_crashed_host_is_repaired_while_the_others_run(slices: Slices) -> None:
    slices.run("pod", "echo booted; sleep 600")
    eventually(lambda: all("booted" in log for log in slices.logs("pod")), 30)
    slices.fault("pod", "crash", host=2)
    eventually(lambda: slices.logs("pod")[2].count("booted") == 2, 30)
    eventually(lambda: slices.state("pod") == "READY", 30)
    assert [log.count("booted") for log in slices.logs("pod")] == [1, 1, 2, 1]


def test_stopped_slice_can_be_started(slices: Slices) -> None:
    node = slices.run("pod", "echo booted; trap 'exit 0' TERM; sleep 600 & wait", tpu=ONE_HOST)
    eventually(lambda: "booted" in slices.logs("pod")[0], 30)
    slices.done(slices.client.stop_node({"name": node.name}))
    assert slices.state("pod") == "STOPPED"
    slices.done(slices.client.start_node({"name": node.name}))
    assert slices.state("pod") == "READY"
    eventually(lambda: slices.logs("pod")[0].count("booted") == 2, 30)


def test_deleted_slice_leaves_no_process_and_no_disk(slices: Slices) -> None:
    node = slices.run("pod", "setsid sleep 600 & sleep 600")
    processes_of_a_host = 3  # the shell of its script, and the two programs that it starts
    eventually(lambda: len(slices.compute.vm_processes()) >= 4 * processes_of_a_host, 30)
    slices.done(slices.client.delete_node(name=node.name))
    assert not slices.compute.vm_processes()
    assert not list((Path(slices.compute.state_dir) / "vms").iterdir()), (
        "disks are deleted with their hosts"
    )
