"""Jobs in containers: the agent's calls of a fake engine, and the exits that it reports."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from trainmaster.agent.program.container_engine import registry_of
from trainmaster.agent.setup.container_image import accepts_vm_token

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.vm import NAME, Vm, is_alive

PRINTS = """
import json, os, sys
print("ARGV", json.dumps(sys.argv[1:]))
print("ENV", json.dumps(dict(os.environ)))
print("warning", file=sys.stderr)
"""
BLOCKS = """
import os, signal
print("PID", os.getpid(), flush=True)
signal.pause()
"""


def test_container_gets_the_documented_arguments_and_environment(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push(PRINTS)
    variables = {"LINES": "one\ntwo", "PATH": "/theirs", "DOCKER_HOST": "tcp://theirs"}
    vm.configure(
        container={"image": IMAGE, "command": ["train", "--now"]},
        python_module="",
        args=["--epochs", "5 a"],
        job_dir="gs://b/d",
        variables=variables,
    )
    cloud.direct(attempt=2, incarnation=3)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]) == ("process", 0, None)
    assert json.loads(vm.wait_for_line("ARGV ")[5:]) == [
        "train",
        "--now",
        "--epochs",
        "5 a",
        "--job-dir",
        "gs://b/d",
    ]
    env = json.loads(vm.wait_for_line("ENV ")[4:])
    assert {name: env[name] for name in variables} == variables
    assert json.loads(env["TF_CONFIG"])["task"]["index"] == 1
    assert (env["RANK"], env["PYTHONUNBUFFERED"], env["GCE_METADATA_HOST"]) == (
        "2",
        "1",
        cloud.host,
    )
    assert not {"HOME", "TRAINMASTER_WORK", "TRAINMASTER_SECRETS_ENDPOINT"} & env.keys()
    vm.wait_for_line("warning")
    assert docker.calls("run")[0]["host"] is None
    argv = docker.calls("run")[0]["argv"]
    first_options = [
        "run",
        "--name",
        f"{NAME}-2-3",
        "--label",
        f"trainmaster-vm={NAME}",
        "--network",
        "host",
        "--shm-size",
    ]
    assert argv[: len(first_options)] == first_options
    engines_own_shm_bytes = 64 << 20
    assert int(argv[argv.index("--shm-size") + 1]) > engines_own_shm_bytes
    assert argv[argv.index("--entrypoint") + 1] == "train"
    assert not any("theirs" in word or "one\n" in word for word in argv)
    assert docker.containers() == []
    assert not (vm.work / "container.env").exists()


def test_vm_token_is_sent_to_googles_registries_only(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("replica-exit")
    pulled = docker.calls("pull")[0]
    auth = base64.b64encode(b"oauth2accesstoken:secret").decode()
    assert pulled["config"] == {"auths": {"us-docker.pkg.dev": {"auth": auth}}}
    assert not any("secret" in word or auth in word for word in pulled["argv"])
    assert not (vm.work / "credentials").exists()

    docker.push("", "python:3.12")
    vm.terminate()
    vm.wait()
    vm.configure(container={"image": "python:3.12", "command": []}, python_module="")
    cloud.direct(attempt=1, incarnation=2)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 2))
    assert docker.calls("pull")[1] == {
        "argv": ["pull", "python:3.12"],
        "host": None,
        "config": None,
    }


@pytest.mark.parametrize(
    ("image", "registry", "accepts"),
    [
        ("python", None, False),
        ("library/python:3.12", None, False),
        ("gcr.io/p/i", "gcr.io", True),
        ("eu.gcr.io/p/i@sha256:0", "eu.gcr.io", True),
        ("europe-docker.pkg.dev/p/r/i:1", "europe-docker.pkg.dev", True),
        ("notgcr.io/p/i", "notgcr.io", False),
        ("gcr.io.example.com/p/i", "gcr.io.example.com", False),
        ("localhost:5000/i", "localhost:5000", False),
        ("localhost/i", "localhost", False),
    ],
)
def test_registry_is_read_from_the_image_name(
    image: str, registry: str | None, accepts: bool
) -> None:
    assert registry_of(image) == registry
    assert accepts_vm_token(registry) is accepts


def test_missing_image_is_a_permanent_failure_with_the_registrys_message(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]["type"]) == (
        "install",
        1,
        "ImageError",
    )
    assert f"manifest for {IMAGE} not found: manifest unknown" in body["error"]["message"]
    assert cloud.published() == [("replica-exit", (1, 1))]
    assert len(docker.calls("pull")) == 1


def test_pull_is_retried_when_the_registry_is_unreachable(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push("print('TRAINED')")
    docker.fail_pulls(
        "Get https://us-docker.pkg.dev/v2/: net/http: TLS handshake timeout", "received 503"
    )
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    vm.wait_for_line("TRAINED")
    assert len(docker.calls("pull")) == 3


def test_all_incarnations_on_a_vm_run_the_same_image(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    cloud.direct(attempt=1, incarnation=2)
    cloud.wait_for_message("replica-exit", (1, 2))
    assert len(docker.calls("pull")) == 1


def test_vm_without_an_engine_reports_what_is_missing(cloud: Cloud, vm: Vm) -> None:
    vm.configure(container={"image": IMAGE, "command": []}, python_module="")
    bin_ = vm.home / "bin"
    bin_.mkdir()
    for name in ("id", "mkdir", "sleep", "python3"):
        (bin_ / name).symlink_to("/bin/" + name if name != "python3" else sys.executable)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot({"PATH": str(bin_)})
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["error"]["type"]) == ("install", "ImageError")
    assert "no container engine (docker or podman)" in body["error"]["message"]


def test_failed_container_reports_its_exit_status(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    vm.boot()
    programs = {
        "raise SystemExit(42)": 42,
        "import os; os.kill(os.getpid(), 11)": 139,  # a signal, reported as 128 plus its number
        "raise SystemExit(125)": 125,  # the status that the engine uses for its own failures
        "raise SystemExit(127)": 127,  # the status that the engine uses for a missing command
    }
    for attempt, (source, status) in enumerate(programs.items(), start=1):
        docker.push(source)
        cloud.direct(attempt=attempt, incarnation=1)
        body = cloud.wait_for_message("replica-exit", (attempt, 1)).body
        end = ("process", status, None, None, False)
        keys = ("cause", "exit_status", "signal", "error", "out_of_memory")
        assert tuple(body[key] for key in keys) == end, source


def test_exception_in_a_container_is_reported(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("raise ValueError('bad shape')")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    error = cloud.wait_for_message("replica-exit").body["error"]
    assert (error["type"], error["message"]) == ("ValueError", "bad shape")


def test_out_of_memory_is_read_from_the_engine_for_killed_containers(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    (docker.engine / "out-of-memory").touch()
    vm.boot()
    programs = {"import os; os.kill(os.getpid(), 9)": True, "exit(1)": False}
    for attempt, (source, expected) in enumerate(programs.items(), start=1):
        docker.push(source)
        cloud.direct(attempt=attempt, incarnation=1)
        assert (
            cloud.wait_for_message("replica-exit", (attempt, 1)).body["out_of_memory"] is expected
        ), source


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("nothing", 127, '"nothing": executable file not found'),
        ("what-tini-cannot-find", 127, "No such file or directory"),
        (
            "what-catatonit-cannot-find",
            127,
            "cannot run what-catatonit-cannot-find: No such file or directory",
        ),
        (
            "what-catatonit-cannot-run",
            126,
            "cannot run what-catatonit-cannot-run: Permission denied",
        ),
    ],
)
def test_command_missing_from_the_image_is_the_users_error(
    cloud: Cloud, vm: Vm, docker: Docker, command: str, status: int, words: str
) -> None:
    docker.push("")
    vm.configure(container={"image": IMAGE, "command": [command]}, python_module="")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]["type"]) == (
        "process",
        status,
        "ContainerError",
    )
    assert words in body["error"]["message"]


def test_engine_failure_to_start_the_container_is_an_internal_error(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push("")
    (docker.engine / "broken").touch()
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]["type"]) == (
        "setup",
        125,
        "ContainerError",
    )
    assert "could not select device driver" in body["error"]["message"]


def test_newer_directive_ends_the_container_with_sigterm(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push("""
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("SAVED", flush=True)))
        print("START", flush=True)
        signal.pause()
        """)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    cloud.direct(attempt=1, incarnation=2)
    vm.wait_for_line("SAVED")
    vm.wait_for_line("START", number=2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert cloud.published() == [("vm-ready", (1, 1)), ("vm-ready", (1, 2))]


def test_container_that_ignores_sigterm_is_killed_after_its_grace(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push(f"import signal; signal.signal(15, signal.SIG_IGN)\n{BLOCKS}")
    vm.configure(container={"image": IMAGE, "command": []}, python_module="", grace_s=0.3)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    pid = int(vm.wait_for_number("PID "))
    cloud.direct(attempt=1, incarnation=1, action="stop")
    vm.wait_for_line("[trainmaster] Module stopped as directed, with signal 9.")
    assert not is_alive(pid)
    assert docker.containers() == []


def test_containers_of_an_earlier_agent_are_removed_but_not_other_vms(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push(BLOCKS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    pid = int(vm.wait_for_number("PID "))
    fake = {
        "labels": ["trainmaster-vm=another"],
        "pid": 0,
        "exit": 0,
        "started": "2026",
        "oom": False,
    }
    (docker.engine / "containers" / "another").write_text(json.dumps(fake))
    cloud.wait_for_message("vm-ready")
    vm.power_off()
    assert is_alive(pid)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_restarted"
    vm.wait_for_line(
        "[trainmaster] Removed 1 containers that an earlier run of the agent left behind."
    )
    assert not is_alive(pid)
    assert docker.containers() == ["another"]


def test_secret_reaches_the_container_without_a_command_line(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push(
        "import os; print('KEY', len(os.environ['API_KEY']), os.environ['API_KEY'] =="
        " 's3cret\\nline')"
    )
    cloud.secrets["projects/p/secrets/key/versions/latest"] = b"s3cret\nline"
    vm.configure(
        container={"image": IMAGE, "command": []}, python_module="", secrets={"API_KEY": "key"}
    )
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert vm.wait_for_line("KEY") == "KEY 11 True"
    cloud.wait_for_message("replica-exit")
    assert "s3cret" not in (docker.engine / "calls").read_text()


def test_credentials_are_readable_by_the_owner_only(cloud: Cloud, vm: Vm, tmp_path: Path) -> None:
    from trainmaster.agent.setup.container_image import write_credentials

    write_credentials(tmp_path / "credentials", "gcr.io", "t")
    assert stat.S_IMODE((tmp_path / "credentials" / "config.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "credentials").stat().st_mode) == 0o700


def test_killed_engine_command_ends_the_container_too(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    """Something killed `docker run` itself: the container must not run on without it."""
    docker.push(BLOCKS)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    pid = int(vm.wait_for_number("PID "))
    cli = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(cli, signal.SIGKILL)
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["signal"]) == ("process", 9)
    assert not is_alive(pid)
