"""Tools that users run beside a job, with the real commands: notifications, a shell on its VM,
TensorBoard.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from tests.support.stack import clean_environment
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.messaging import topics
from trainmaster.messaging.job_state import JobStateMessage
from trainmaster_emulators.checkout import ROOT

HEAVY = pytest.mark.heavy(
    fact="a shell, notifications and TensorBoard work beside a whole job",
    quick=(
        "one command in the same module; `unit/flows/test_notifications.py`,"
        " `contract/test_event_files.py`"
    ),
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

CHIEF = ReplicaId(TaskType.CHIEF, 0)
WORKER_0 = ReplicaId(TaskType.WORKER, 0)
CONNECTION_LOST = 255


@pytest.fixture(scope="module")
def running(lab: Lab) -> Iterator[str]:
    """Return a job that runs until its test is over: a chief and a worker."""
    job_id = lab.scripted(workers=1, steps=MANY_STEPS)
    lab.wait(job_id, "RUNNING", 60)
    yield job_id
    lab.cancel(job_id)


def command(*words: str) -> list[str]:
    return [str(ROOT / ".venv" / "bin" / "trainmaster"), *words]


def ssh(lab: Lab, *words: str) -> subprocess.CompletedProcess[str]:
    return lab.stack.run(*command("ssh", *words))


def test_command_runs_on_the_vm_and_its_exit_status_is_returned(lab: Lab, running: str) -> None:
    vm = lab.stack.state_dir / "compute" / "vms" / lab.vm(running, WORKER_0).instance_id
    done = ssh(
        lab,
        running,
        "worker-0",
        "--",
        'echo "$HOME"; pwd; pgrep -f trainer.task >/dev/null && echo found; exit 7',
    )
    assert done.stdout.split() == [str(vm / "home"), str(vm / "work"), "found"]
    assert done.returncode == 7


@HEAVY
def test_command_of_several_words_gets_them_unchanged(lab: Lab, running: str) -> None:
    assert (
        ssh(lab, running, "worker-0", "--", "printf", "%s|", "a b", "$HOME").stdout == "a b|$HOME|"
    )


@HEAVY
def test_vms_have_their_own_temporary_folder_in_the_shell_too(lab: Lab, running: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("a mount namespace needs root; without it, TMPDIR is the VM's own")
    assert ssh(lab, running, "worker-0", "--", "echo hello > /tmp/of-worker-0").returncode == 0
    assert ssh(lab, running, "worker-0", "--", "cat /tmp/of-worker-0").stdout == "hello\n"
    assert ssh(lab, running, "chief-0", "--", "cat /tmp/of-worker-0").returncode == 1
    assert not Path("/tmp/of-worker-0").exists()


@HEAVY
def test_shell_has_a_terminal_and_returns_its_exit_status(lab: Lab, running: str) -> None:
    controller, terminal = pty.openpty()
    variables = {**clean_environment(), **lab.stack.environment, "TERM": "dumb"}
    shell = subprocess.Popen(
        command("ssh", running, "worker-0"),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=variables,
        start_new_session=True,
    )
    os.close(terminal)
    os.write(controller, b"test -t 0 && echo is-a-$((40 + 2))-terminal; exit 3\n")
    output = b""
    with suppress(OSError):  # the terminal is closed when the last process on it ends
        while part := os.read(controller, 4096):
            output += part
    os.close(controller)
    assert b"is-a-42-terminal" in output
    assert shell.wait(30) == 3


@HEAVY
def test_shell_ends_with_its_vm(lab: Lab) -> None:
    job_id = lab.scripted(workers=1, steps=MANY_STEPS)
    lab.wait(job_id, "RUNNING", 60)
    variables = {**clean_environment(), **lab.stack.environment}
    words = command("ssh", job_id, "worker-0", "--", "echo ready; sleep 300")
    shell = subprocess.Popen(
        words, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert shell.stdout is not None
    assert shell.stdout.readline() == "ready\n"
    lab.cancel(job_id)
    _, errors = shell.communicate(timeout=60)
    assert shell.returncode == CONNECTION_LOST
    assert "is closed" in errors
    ended = ssh(lab, job_id, "worker-0", "--", "true")
    assert ended.returncode == 1
    assert f"worker 0 of {job_id} has no VM: the job is CANCELLED since 20" in ended.stderr


@contextmanager
def tensorboard(lab: Lab, *words: str) -> Iterator[str]:
    """Run `trainmaster tensorboard`. The value is TensorBoard's address."""
    variables = {**clean_environment(), **lab.stack.environment}
    process = subprocess.Popen(
        command("tensorboard", *words, "--port", "0", "--interval", "1"),
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line)
            if match := re.search(r"at (http://127\.0\.0\.1:\d+/)", line):
                yield match[1]
                break
        else:
            raise AssertionError("".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        process.stdout.close()


def answer_of(address: str) -> Any:
    """Return the answer of TensorBoard; an empty list while it has not read what the
    address names.
    """
    try:
        with urllib.request.urlopen(address, timeout=30) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.NOT_FOUND:
            raise
        return []


@HEAVY
@pytest.mark.timeout(300)
def test_subscribers_learn_of_each_transition_and_tensorboard_shows_points_while_the_job_runs(
    lab: Lab,
) -> None:
    lab.stack.pubsub.create_pull(topics.JOB_STATE, "of-the-test")
    spec = lab.scripted_spec(
        workers=0,
        pythonModule="trainer.events",
        args=[],
        runtimeVersion="2.21",
        jobDir=f"gs://{lab.bucket}/events-of-the-test",
    )
    job_id = lab.upload(spec, "events")
    lab.wait(job_id, "RUNNING", 120)
    run = f"{job_id}/train"
    with tensorboard(lab, job_id) as address:
        lab.until(lambda: answer_of(f"{address}data/runs") == [run], 60)
        scalars = f"{address}data/plugin/scalars/scalars?run={run}&tag=loss"
        lab.until(lambda: answer_of(scalars), 60)
        first = len(answer_of(scalars))
        lab.until(lambda: len(answer_of(scalars)) > first, 60)
    lab.finish(job_id)
    lab.wait_for_success(job_id, 60)
    received: list[JobStateMessage] = []

    def has_all() -> bool:
        messages = [
            JobStateMessage.model_validate_json(entry["data"])
            for entry in lab.stack.pubsub.pull("of-the-test")
        ]
        received.extend(message for message in messages if message.job_id == job_id)
        return len({message.id for message in received}) == 4

    lab.until(has_all, 30)
    order = sorted({(message.at, message.state.value) for message in received})
    assert [state for _, state in order] == ["QUEUED", "PREPARING", "RUNNING", "SUCCEEDED"]
    assert lab.store.open_notifications(10) == ()
