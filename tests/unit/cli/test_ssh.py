"""`trainmaster ssh`: which VM a replica has, the command lines of gcloud, and what is refused with
which advice.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.jobs import WORKER_0, a_job, a_replica, a_state, at
from tests.support.tuning_jobs import a_tuning_job
from trainmaster.cli.ssh import google_cloud
from trainmaster.cli.ssh.remote_command import NO_CONTAINER, as_shell_text, in_container
from trainmaster.cli.ssh.target import Target, find_target
from trainmaster.core.model.job import JobState, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm_names import vm_name
from trainmaster.errors import PermanentError

VM = Target(
    "tm-digits-1", "us-central1-a", is_tpu=False, host=0, has_container=False, replica="worker 0"
)
SLICE = replace(VM, is_tpu=True, host=3)


def test_running_replica_is_found_with_its_vm_and_zone() -> None:
    target = find_target(a_state(), "worker 0", 0)
    assert target == Target(
        vm_name("digits_1", WORKER_0),
        "us-central1-a",
        is_tpu=False,
        host=0,
        has_container=False,
        replica="worker 0",
    )


@pytest.mark.parametrize(
    ("name", "replica"),
    [
        ("worker-1", "worker 1"),
        ("worker 1", "worker 1"),
        ("worker-replica-1", "worker 1"),
        ("master-replica-0", "chief 0"),
    ],
)
def test_replica_may_be_named_as_in_messages_and_logs(name: str, replica: str) -> None:
    assert find_target(a_state(), name, 0).replica == replica


def test_replica_between_two_incarnations_keeps_its_vm() -> None:
    restarting = a_state(a_replica(WORKER_0, ReplicaState.RESTARTING))
    assert find_target(restarting, "worker-0", 0).vm == vm_name("digits_1", WORKER_0)


@pytest.mark.parametrize(
    ("state", "problem"),
    [
        pytest.param(
            a_state(),
            "has no replica worker-7. Its replicas: chief-0, worker-0, worker-1",
            id="unknown",
        ),
        pytest.param(
            a_state(a_replica(WORKER_0, ReplicaState.REPLACING, ordered_at=at(60))),
            (
                "worker 0 of digits_1 is not running: it is REPLACING since 2026-11-21 03:01:00"
                " UTC. Try again"
            ),
            id="replacing",
        ),
        pytest.param(
            a_state(a_replica(WORKER_0, ReplicaState.COMPLETED, done_at=at(5))),
            "it is COMPLETED since 2026-11-21 03:00:05 UTC. Its VM is deleted",
            id="completed",
        ),
        pytest.param(
            a_state(a_replica(WORKER_0, ReplicaState.WAITING)),
            "is not running: it is WAITING",
            id="waiting",
        ),
        pytest.param(
            a_state(job=a_job(JobState.FAILED, ended_at=at(9))),
            "has no VM: the job is FAILED since 2026-11-21 03:00:09 UTC",
            id="ended job",
        ),
        pytest.param(
            State(a_tuning_job("qrs")),
            "its live trials have: digits_1-trial-1, digits_1-trial-2",
            id="tuning job",
        ),
        pytest.param(State(a_tuning_job("s")), "and it has no live trial", id="ended tuning job"),
    ],
)
def test_replica_without_a_vm_is_refused_with_its_state(state: State, problem: str) -> None:
    replica = "worker-7" if "worker-7" in problem else "worker-0"
    with pytest.raises(PermanentError, match=r".*") as raised:
        find_target(state, replica, 0)
    assert problem in str(raised.value)


def test_host_that_a_vm_does_not_have_is_refused() -> None:
    with pytest.raises(PermanentError, match="--host 1: worker 0 has 1 hosts"):
        find_target(a_state(), "worker-0", 1)


def test_shell_on_a_vm_goes_through_identity_aware_proxy() -> None:
    assert google_cloud.ssh_command(VM, "my-project", "", has_terminal=True) == [
        "gcloud",
        "compute",
        "ssh",
        "tm-digits-1",
        "--zone=us-central1-a",
        "--project=my-project",
        "--tunnel-through-iap",
    ]


def test_command_at_a_terminal_gets_one() -> None:
    words = google_cloud.ssh_command(VM, "my-project", "top", has_terminal=True)
    assert words[-3:] == ["--command=top", "--", "-t"]
    assert google_cloud.ssh_command(VM, "p", "top", has_terminal=False)[-1] == "--command=top"


def test_host_of_a_slice_is_a_worker_of_the_node() -> None:
    words = google_cloud.ssh_command(SLICE, "my-project", "", has_terminal=False)
    assert words[:8] == [
        "gcloud",
        "alpha",
        "compute",
        "tpus",
        "tpu-vm",
        "ssh",
        "tm-digits-1",
        "--worker=3",
    ]


@pytest.fixture
def gcloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a program `gcloud` that prints `answer` for describe, and notes its
    arguments in `calls`.
    """
    program = tmp_path / "gcloud"
    program.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, sys\n"
        "here = pathlib.Path(__file__).parent\n"
        "with (here / 'calls').open('a') as file: file.write(' '.join(sys.argv[1:]) + '\\n')\n"
        "if 'describe' in sys.argv: print((here / 'answer').read_text())\n"
        "sys.exit(0 if 'describe' in sys.argv else 9)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize(
    ("target", "metadata"),
    [
        (VM, {"items": [{"key": "enable-oslogin", "value": "TRUE"}]}),
        (SLICE, {"enable-oslogin": "TRUE"}),
    ],
    ids=["VM", "slice"],
)
def test_exit_status_of_gcloud_is_returned(gcloud: Path, target: Target, metadata: object) -> None:
    (gcloud / "answer").write_text(json.dumps({"metadata": metadata}))
    assert google_cloud.run(target, "my-project", "true", has_terminal=False) == 9
    describe, ssh = (gcloud / "calls").read_text().splitlines()
    assert describe.endswith("--zone=us-central1-a --project=my-project --format=json(metadata)")
    assert "--tunnel-through-iap" in ssh


@pytest.mark.parametrize(
    "answer", ["null", '{"metadata": {}}', '{"metadata": {"items": [{"key": "a", "value": "b"}]}}']
)
def test_vm_without_os_login_is_refused_with_the_variable(gcloud: Path, answer: str) -> None:
    (gcloud / "answer").write_text(answer)
    with pytest.raises(PermanentError, match="Set `ssh_users` in infra/"):
        google_cloud.run(VM, "my-project", "", has_terminal=False)
    assert "ssh" not in (gcloud / "calls").read_text().split()


def test_vm_that_gcloud_cannot_read_is_refused_with_its_reason(gcloud: Path) -> None:
    (gcloud / "gcloud").write_text("#!/bin/sh\necho 'ERROR: not found: tm-digits-1' >&2\nexit 1\n")
    with pytest.raises(PermanentError, match="tm-digits-1 cannot be read: ERROR: not found"):
        google_cloud.run(VM, "my-project", "", has_terminal=False)


def test_missing_gcloud_is_named_with_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PermanentError, match="gcloud is not installed"):
        google_cloud.run(VM, "my-project", "", has_terminal=False)


def test_one_word_is_a_line_of_shell_and_several_are_arguments() -> None:
    assert as_shell_text(["echo $HOME | wc"]) == "echo $HOME | wc"
    assert as_shell_text(["echo", "$HOME", "a b"]) == "echo '$HOME' 'a b'"


ENGINE = """#!/bin/sh
case "$1" in
  ps) {listed} ;;
  exec) shift; printf '%s\\n' "$@" ;;
esac
"""


def run_in_container(folder: Path, listed: str, *words: str) -> subprocess.CompletedProcess[str]:
    engine = folder / "docker"
    engine.write_text(ENGINE.format(listed=listed))
    engine.chmod(0o755)
    text = in_container(words, has_terminal=False, sudo=False)
    path = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(["sh", "-c", text], env=path, capture_output=True, text=True, check=False)


def test_command_in_the_container_of_the_job_gets_its_words_unchanged(tmp_path: Path) -> None:
    done = run_in_container(tmp_path, "echo c0ffee", "python", "-c", "print('a b')")
    assert done.stdout.splitlines() == [
        "--interactive",
        "c0ffee",
        "sh",
        "-c",
        """python -c 'print('"'"'a b'"'"')'""",
    ]


def test_vm_without_a_running_container_is_named(tmp_path: Path) -> None:
    done = run_in_container(tmp_path, ":")
    assert (done.returncode, done.stderr) == (
        NO_CONTAINER,
        "trainmaster: no container of the job runs on this VM\n",
    )


def test_container_is_entered_as_root_on_google_cloud_and_with_a_terminal_at_one() -> None:
    text = in_container([], has_terminal=True, sudo=True)
    assert "sudo $engine ps" in text
    assert "exec sudo $engine exec --interactive --tty" in text
