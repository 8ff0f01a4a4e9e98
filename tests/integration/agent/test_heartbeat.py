"""The agent writes the time to a guest attribute of its VM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.stack import eventually
from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.reporting import heartbeat
from trainmaster.agent.reporting.heartbeat import Heartbeat
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.workspace import Workspace
from trainmaster.core.timeouts import AGENT_TIMEOUT
from trainmaster.gcp.vm_labels import HEARTBEAT, parse_heartbeat

from .support.cloud import Cloud
from .support.vm import Vm, agent_identity


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
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("[trainmaster] The heartbeat cannot be written: HTTP 403")
    vm.wait_for_line("STARTED")


def test_point_is_written_with_the_same_time_even_where_guest_attributes_are_forbidden(
    cloud: Cloud,
) -> None:
    cloud.set("instance/id", "4711")
    cloud.guest_attributes_status = 403
    cloud.clock_offset_s = -7200
    server, points = MetadataServer(cloud.host), list[str]()
    Heartbeat(server, Inbox(server), Console(), write_point=points.append).beat()
    eventually(lambda: len(points) == 1)
    written = datetime.fromisoformat(points[0])
    assert abs(datetime.now(UTC) - timedelta(hours=2) - written) < timedelta(minutes=1)


BEATS = 6


@pytest.mark.parametrize(
    ("status", "writes"),
    [(403, heartbeat.REFUSALS_MAX), (503, BEATS)],
    ids=["refused", "late"],
)
def test_points_end_after_three_refusals_and_go_on_after_faults(
    cloud: Cloud, status: int, writes: int
) -> None:
    """A new permission takes a minute or two to be known everywhere."""
    cloud.set("instance/id", "4711")
    server, attempts = MetadataServer(cloud.host), list[str]()

    def refuse(at: str) -> None:
        attempts.append(at)
        raise HttpError(status, "no")

    inbox = Inbox(server)
    Heartbeat(server, inbox, Console(), write_point=refuse, interval_s=0.02).beat()
    for beats in range(1, BEATS + 1):
        if beats > 1:
            inbox.handle_next()  # starts the next beat
        eventually(lambda: cloud.guest_attribute_writes == beats)  # noqa: B023 - called at once
        eventually(lambda: len(attempts) == min(beats, writes))  # noqa: B023 - called at once
    assert len(attempts) == writes


def test_main_thread_that_hangs_writes_no_heartbeat(cloud: Cloud) -> None:
    """Only the main thread starts a write, so a heartbeat means that the agent handles
    its events.
    """
    cloud.set("instance/id", "4711")
    inbox = Inbox(MetadataServer(cloud.host))
    Heartbeat(MetadataServer(cloud.host), inbox, Console(), interval_s=0.05).beat()
    eventually(lambda: cloud.guest_attribute_writes == 1)
    with pytest.raises(AssertionError):
        eventually(lambda: cloud.guest_attribute_writes > 1, within_s=0.5)
    inbox.handle_next()
    eventually(lambda: cloud.guest_attribute_writes == 2)


def test_stuck_agent_writes_no_heartbeat_until_it_is_free(cloud: Cloud) -> None:
    cloud.set("instance/id", "4711")
    inbox, is_stuck_at_beats = Inbox(MetadataServer(cloud.host)), [True, False]
    Heartbeat(
        MetadataServer(cloud.host),
        inbox,
        Console(),
        is_stuck=lambda: is_stuck_at_beats.pop(0),
        interval_s=0.05,
    ).beat()
    assert cloud.guest_attribute_writes == 0
    inbox.handle_next()
    eventually(lambda: cloud.guest_attribute_writes == 1)


def test_launcher_is_stuck_a_minute_after_sigkill_ended_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No test can make a process that the kernel does not end: the marked one stands for it, until
    it is gone.
    """
    survivors = [1, 2, 3]
    workspace = Workspace(tmp_path, environ={}, console=Console())
    launcher = Launcher(agent_identity(), workspace, lambda: None, metric=None, gcs=None)  # type: ignore[arg-type]
    seen: list[bool] = []

    def pass_time(_: object) -> int:
        now[0] += 40
        seen.append(launcher.is_stuck)
        return survivors.pop()

    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("trainmaster.agent.control.launcher.survivors", lambda *_: survivors)
    monkeypatch.setattr("trainmaster.agent.control.launcher.kill_all", pass_time)
    launcher.await_end()
    assert (seen, launcher.is_stuck) == ([False, True, True], False)


def test_timeout_allows_several_heartbeats_to_be_lost() -> None:
    assert AGENT_TIMEOUT.total_seconds() >= 10 * heartbeat.INTERVAL_S
