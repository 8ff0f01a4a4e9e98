"""The hosts of a slice: real processes with metadata of their own, and what happens to one or all of them."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import yaml

from tests.integration.compute.emulator import eventually, running_emulator
from tests.integration.tpu.world import FOUR_HOSTS, ONE_HOST, Slices

ASK = """
ask() { curl -s -H 'Metadata-Flavor: Google' "http://$GCE_METADATA_HOST/computeMetadata/v1/instance/$1"; }
"""
SHOW = f"""{ASK}
for key in name zone network-interfaces/0/ip attributes/accelerator-type attributes/agent-worker-number \
    attributes/worker-network-endpoints attributes/tpu-env attributes/own
do echo "$key=$(ask $key | tr '\\n' '|')"; done
echo shown; sleep 600
"""
WAIT_FOR_PREEMPTION = f"""{ASK}
trap 'echo told to end; exit 0' TERM
until [ "$(ask preempted)" = TRUE ]; do echo waiting; sleep 0.1; done
echo preempted; sleep 600 & wait
"""


def said(log: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in log.splitlines() if "=" in line)


def test_each_host_has_its_own_place_in_the_slice(slices: Slices) -> None:
    node = slices.run("pod", SHOW, metadata={"own": "value"})
    eventually(lambda: [("shown" in log) for log in slices.logs("pod")] == [True] * 4, 30)
    hosts = [said(log) for log in slices.logs("pod")]
    endpoints = {host["attributes/worker-network-endpoints"] for host in hosts}
    assert len(endpoints) == 1, "all see the same slice"
    addresses = [each.split(":")[2] for each in endpoints.pop().split(",")]
    assert addresses == [each.ip_address for each in node.network_endpoints]
    assert len(set(addresses)) == 4
    for number, host in enumerate(hosts):
        assert host["attributes/agent-worker-number"] == str(number)
        assert host["attributes/accelerator-type"] == "v5litepod-16"
        assert host["attributes/own"] == "value"
        assert host["name"].endswith(f"-w-{number}")
        assert host["name"] != "pod", "a host's VM has a name of Google's own"
        assert host["network-interfaces/0/ip"] == addresses[number]
        assert host["zone"].endswith("/zones/us-central1-a")
        environment = yaml.safe_load(host["attributes/tpu-env"].replace("|", "\n"))
        assert environment["NODE_ID"] == "pod"
        assert environment["UID"] == str(node.id)
        assert environment["WORKER_ID"] == str(number)
        assert (environment["TOPOLOGY"], environment["HOST_BOUNDS"]) == ("4x4", "2,2,1")
        assert environment["CHIPS_PER_HOST_BOUNDS"] == "2,2,1"


@pytest.mark.parametrize(
    ("kind", "topology", "hosts", "chips", "bounds"),
    [
        ("v5litepod-1", "1x1", 1, "1,1,1", "1,1,1"),
        ("v5litepod-8", "2x4", 1, "2,4,1", "1,1,1"),
        ("v5p-16", "2x2x2", 2, "2,2,1", "1,1,2"),
    ],
)
def test_slices_have_the_hosts_that_their_type_says(
    slices: Slices, kind: str, topology: str, hosts: int, chips: str, bounds: str
) -> None:
    node = slices.run("slice", SHOW, accelerator_type=kind)
    assert node.accelerator_config.topology == topology
    assert len(node.network_endpoints) == hosts
    eventually(lambda: all("shown" in log for log in slices.logs("slice")), 30)
    environment = yaml.safe_load(said(slices.logs("slice")[0])["attributes/tpu-env"].replace("|", "\n"))
    assert (environment["CHIPS_PER_HOST_BOUNDS"], environment["HOST_BOUNDS"]) == (chips, bounds)


def test_a_preemption_is_told_to_every_host_and_leaves_the_node(slices: Slices) -> None:
    slices.run("pod", WAIT_FOR_PREEMPTION)
    eventually(lambda: [("waiting" in log) for log in slices.logs("pod")] == [True] * 4, 30)
    slices.fault("pod", "preempt", notice_s=20)
    eventually(lambda: slices.state("pod") == "PREEMPTED", 30)
    for log in slices.logs("pod"):
        assert "told to end" in log
    assert slices.get("pod").health.name == "HEALTHY"


def test_maintenance_ends_the_whole_slice(slices: Slices) -> None:
    slices.run("pod", "trap 'exit 0' TERM; sleep 600 & wait", tpu=ONE_HOST)
    slices.fault("pod", "maintenance", notice_s=0.1)
    eventually(lambda: slices.state("pod") == "TERMINATED", 30)
    assert slices.get("pod").health.name == "UNHEALTHY_MAINTENANCE"


def test_a_host_that_dies_alone_comes_back_and_the_others_run_on(slices: Slices) -> None:
    slices.run("pod", "echo booted; sleep 600")
    eventually(lambda: all("booted" in log for log in slices.logs("pod")), 30)
    slices.fault("pod", "crash", host=2)
    eventually(lambda: slices.logs("pod")[2].count("booted") == 2, 30)
    eventually(lambda: slices.state("pod") == "READY", 30)
    assert [log.count("booted") for log in slices.logs("pod")] == [1, 1, 2, 1]


def test_stopped_slices_start_again(slices: Slices) -> None:
    node = slices.run("pod", "echo booted; trap 'exit 0' TERM; sleep 600 & wait", tpu=ONE_HOST)
    eventually(lambda: "booted" in slices.logs("pod")[0], 30)
    slices.done(slices.client.stop_node({"name": node.name}))
    assert slices.state("pod") == "STOPPED"
    slices.done(slices.client.start_node({"name": node.name}))
    assert slices.state("pod") == "READY"
    eventually(lambda: slices.logs("pod")[0].count("booted") == 2, 30)


def test_deleting_a_slice_ends_every_process_of_every_host(slices: Slices) -> None:
    node = slices.run("pod", "setsid sleep 600 & sleep 600")
    eventually(lambda: len(slices.compute.vm_processes()) >= 12, 30)
    slices.done(slices.client.delete_node(name=node.name))
    assert not slices.compute.vm_processes()
    assert not list((Path(slices.compute.state_dir) / "vms").iterdir()), "disks go with their hosts"


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_an_emulator_that_ends_takes_its_slices_with_it(tmp_path: Path, signum: signal.Signals) -> None:
    with running_emulator(tmp_path) as emulator:
        slices = Slices(emulator)
        slices.run("pod", "setsid sleep 600 & sleep 600", FOUR_HOSTS)
        eventually(lambda: len(emulator.vm_processes()) >= 12, 30)
        os.kill(emulator.process.pid, signum)
        emulator.process.wait(30)
        eventually(lambda: not emulator.vm_processes(), 30)
