"""The agent writes the time to a guest attribute of its VM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from tests.support.stack import eventually
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.reporting import heartbeat
from trainmaster.agent.reporting.heartbeat import Heartbeat
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.core.timeouts import AGENT_TIMEOUT
from trainmaster.gcp.compute_fleet.fleet import HEARTBEAT, parse_heartbeat

from .support.cloud import Cloud
from .support.vm import Vm


def test_agent_writes_heartbeats_from_its_start(cloud: Cloud, vm: Vm) -> None:
    vm.boot()
    eventually(lambda: HEARTBEAT in cloud.guest_attributes)
    written = parse_heartbeat(cloud.guest_attributes[HEARTBEAT])
    assert written is not None
    assert abs(datetime.now(UTC) - written) < timedelta(minutes=1)
    vm.terminate()
    assert vm.wait() == 0


def test_heartbeat_has_the_time_of_the_metadata_server(cloud: Cloud) -> None:
    """The clock of a VM may be hours off, and its agent must not look silent for that."""
    cloud.set("instance/id", "4711")
    cloud.clock_offset_s = -7200
    server = MetadataServer(cloud.host)
    Heartbeat(server, Inbox(server), Console()).beat()
    eventually(lambda: HEARTBEAT in cloud.guest_attributes)
    written = parse_heartbeat(cloud.guest_attributes[HEARTBEAT])
    assert written is not None
    assert abs(datetime.now(UTC) - timedelta(hours=2) - written) < timedelta(minutes=1)


def test_agent_continues_where_guest_attributes_are_forbidden(cloud: Cloud, vm: Vm) -> None:
    cloud.guest_attributes_status = 403
    vm.program("print('STARTED')")
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("[trainmaster] The heartbeat cannot be written: HTTP 403")
    vm.wait_for_line("STARTED")


def test_main_thread_that_hangs_writes_no_heartbeat(cloud: Cloud) -> None:
    """Only the main thread starts a write, so a heartbeat means that the agent handles its events."""
    cloud.set("instance/id", "4711")
    inbox = Inbox(MetadataServer(cloud.host))
    Heartbeat(MetadataServer(cloud.host), inbox, Console(), interval_s=0.05).beat()
    eventually(lambda: cloud.guest_attribute_writes == 1)
    with pytest.raises(AssertionError):
        eventually(lambda: cloud.guest_attribute_writes > 1, within_s=0.5)
    inbox.handle_next()
    eventually(lambda: cloud.guest_attribute_writes == 2)


def test_timeout_allows_several_heartbeats_to_be_lost() -> None:
    assert AGENT_TIMEOUT.total_seconds() >= 10 * heartbeat.INTERVAL_S
