"""The key of the peer channel is in the job's document and in the configuration of its VMs, and
nowhere else.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.jobs import CHIEF, WORKER_0, a_spec
from tests.support.world import World
from trainmaster.agent.model.vm_config import VmConfig
from trainmaster.core.events import JobSubmitted
from trainmaster.core.model.job import Job
from trainmaster.gcp.firestore.documents import entry_document, job_document, read

SHARED = Path(__file__).parents[3] / "shared/trainmaster"
HOLDERS = {
    "core/model/job.py",  # its field
    "flows/commit/record.py",  # draws it
    "flows/provisioning/vm_metadata.py",  # gives it to the VMs
}
DUMPS = {"gcp/firestore/documents.py"}
"""Modules that turn dataclasses of any kind into text or documents as a whole."""


@pytest.fixture
def world() -> World:
    world = World()
    world.start_running()
    world.exit_program(WORKER_0, 1)
    world.deliver()
    return world


def test_each_job_has_its_own_key_which_stays(world: World) -> None:
    key = world.job.channel_key
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert read(Job, job_document(world.job)).channel_key == key
    config = json.loads(world.fleet.metadata(world.vm(CHIEF).name)["trainmaster-vm-config"])
    assert config["channel"]["key"] == key
    other = World()
    other.submit()
    assert other.job.channel_key != key


def test_key_is_in_no_event_decision_message_log_or_text(world: World) -> None:
    key = world.job.channel_key
    assert isinstance(world.ledger[0].event, JobSubmitted)
    documents = [entry_document(entry) for entry in world.ledger]
    texts = [
        repr(world.job),
        repr(world.store.load("digits_1")),
        repr(documents),
        repr(world.ledger),
    ]
    config = VmConfig.parse(world.fleet.metadata(world.vm(CHIEF).name)["trainmaster-vm-config"])
    assert config.channel is not None
    assert config.channel.key.hex() == key
    texts.append(repr(config))
    assert not [text for text in texts if key in text or repr(config.channel.key) in text]


@pytest.mark.parametrize(
    ("spec", "has_key"),
    [
        (a_spec(), True),
        ({**a_spec(), "trainmaster": {"independentReplicas": True}}, False),
        (a_spec(scaleTier="BASIC", workerCount=None, workerType=None, masterType=None), False),
    ],
)
def test_only_synchronous_jobs_have_a_key(spec: dict[str, object], *, has_key: bool) -> None:
    world = World()
    world.submit(spec)
    assert bool(world.job.channel_key) is has_key
    world.deliver()
    config = json.loads(world.fleet.metadata(world.vms[0].name)["trainmaster-vm-config"])
    assert ("channel" in config) is has_key


def test_vm_configuration_without_a_key_opens_no_port() -> None:
    """VMs of jobs with one replica have such a configuration."""
    from tests.integration.agent.support.vm import vm_config

    config = VmConfig.parse(json.dumps(vm_config()))
    assert (config.channel, config.saves_together) == (None, False)
    assert not VmConfig.parse(json.dumps(vm_config(save_on_notice="gang"))).saves_together


def test_no_other_module_reads_the_key_or_writes_whole_jobs() -> None:
    readers, dumpers = set(), set()
    for file in SHARED.rglob("*.py"):
        text, name = file.read_text(encoding="utf-8"), str(file.relative_to(SHARED))
        if "channel_key" in text:
            readers.add(name)
        if re.search(
            r"dump_python|\basdict\((state\.|loaded\.|self\.)?job\)|TypeAdapter\(kind\)|vars\(job\)",
            text,
        ):
            dumpers.add(name)
    assert readers == HOLDERS
    assert dumpers == DUMPS
