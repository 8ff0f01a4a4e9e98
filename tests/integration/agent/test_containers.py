"""A job in a container: what the agent asks of the engine, and what it makes of the answers."""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from shared.agent.program.container_engine import registry_of
from shared.agent.setup.container_image import takes_our_token

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


def test_an_image_is_pulled_and_run_with_the_documented_arguments_and_environment(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push(PRINTS)
    variables = {"LINES": "one\ntwo", "PATH": "/theirs", "DOCKER_HOST": "tcp://theirs"}
    vm.gang(
        container={"image": IMAGE, "command": ["train", "--now"]},
        python_module="",
        args=["--epochs", "5 a"],
        job_dir="gs://b/d",
        variables=variables,
    )
    cloud.direct(2, 3)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]) == ("process", 0, None)
    assert json.loads(vm.wait_for_line("ARGV ")[5:]) == ["train", "--now", "--epochs", "5 a", "--job-dir", "gs://b/d"]
    env = json.loads(vm.wait_for_line("ENV ")[4:])
    assert {name: env[name] for name in variables} == variables
    assert json.loads(env["TF_CONFIG"])["task"]["index"] == 1
    assert (env["RANK"], env["PYTHONUNBUFFERED"], env["GCE_METADATA_HOST"]) == ("2", "1", cloud.host)
    assert not {"HOME", "TRAINMASTER_WORK", "TRAINMASTER_SECRETS_ENDPOINT"} & env.keys()
    vm.wait_for_line("warning")
    assert docker.calls("run")[0]["host"] is None
    argv = docker.calls("run")[0]["argv"]
    assert argv[:10] == [
        "run", "--name", f"{NAME}-2-3", "--label", f"trainmaster-vm={NAME}",
        "--network", "host", "--ipc", "host", "--log-driver",
    ]  # fmt: skip
    assert argv[argv.index("--entrypoint") + 1] == "train"
    assert not any("theirs" in word or "one\n" in word for word in argv)
    assert docker.containers() == []
    assert not (vm.work / "container.env").exists()


def test_googles_registries_are_shown_the_vms_token_and_nobody_else_is(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("")
    cloud.direct(1, 1)
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
    vm.gang(container={"image": "python:3.12", "command": []}, python_module="")
    cloud.direct(1, 2)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 2))
    assert docker.calls("pull")[1] == {"argv": ["pull", "python:3.12"], "host": None, "config": None}


@pytest.mark.parametrize(
    ("image", "registry", "ours"),
    [
        ("python", None, False),
        ("library/python:3.12", None, False),
        ("gcr.io/p/i", "gcr.io", True),
        ("eu.gcr.io/p/i@sha256:0", "eu.gcr.io", True),
        ("europe-docker.pkg.dev/p/r/i:1", "europe-docker.pkg.dev", True),
        ("notgcr.io/p/i", "notgcr.io", False),
        ("gcr.io.evil.com/p/i", "gcr.io.evil.com", False),
        ("localhost:5000/i", "localhost:5000", False),
        ("localhost/i", "localhost", False),
    ],
)
def test_a_registry_is_what_an_images_name_begins_with(image: str, registry: str | None, ours: bool) -> None:
    assert registry_of(image) == registry
    assert takes_our_token(registry) is ours


def test_an_image_that_is_not_there_is_a_permanent_failure_with_the_registrys_words(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]["type"]) == ("install", 1, "ImageError")
    assert f"manifest for {IMAGE} not found: manifest unknown" in body["error"]["message"]
    assert cloud.said() == [("replica-exit", (1, 1))]
    assert len(docker.calls("pull")) == 1


def test_a_registry_that_cannot_be_reached_is_asked_again(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("print('TRAINED')")
    docker.refuse("Get https://us-docker.pkg.dev/v2/: net/http: TLS handshake timeout", "received 503")
    cloud.direct(1, 1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    vm.wait_for_line("TRAINED")
    assert len(docker.calls("pull")) == 3


def test_all_lives_on_a_vm_run_the_same_image(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("")
    cloud.direct(1, 1)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    cloud.direct(1, 2)
    cloud.wait_for_message("replica-exit", (1, 2))
    assert len(docker.calls("pull")) == 1


def test_without_an_engine_the_failure_says_what_is_missing(cloud: Cloud, vm: Vm) -> None:
    vm.gang(container={"image": IMAGE, "command": []}, python_module="")
    bin_ = vm.home / "bin"
    bin_.mkdir()
    for name in ("id", "mkdir", "sleep", "python3"):
        (bin_ / name).symlink_to("/bin/" + name if name != "python3" else sys.executable)
    cloud.direct(1, 1)
    vm.boot({"PATH": str(bin_)})
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["error"]["type"]) == ("install", "ImageError")
    assert "no container engine (docker or podman)" in body["error"]["message"]


@pytest.mark.parametrize(
    ("source", "status"),
    [
        pytest.param("raise SystemExit(42)", 42, id="its own status"),
        pytest.param("import os; os.kill(os.getpid(), 11)", 139, id="a signal, as 128 and its number"),
        pytest.param("raise SystemExit(125)", 125, id="the status that the engine fails with"),
        pytest.param("raise SystemExit(127)", 127, id="the status of a command that is not there"),
    ],
)
def test_a_failure_is_told_with(cloud: Cloud, vm: Vm, docker: Docker, source: str, status: int) -> None:
    docker.push(source)
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["signal"], body["error"]) == ("process", status, None, None)
    assert body["out_of_memory"] is False


def test_an_exception_in_a_container_is_told_as_such(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("raise ValueError('bad shape')")
    cloud.direct(1, 1)
    vm.boot()
    error = cloud.wait_for_message("replica-exit").body["error"]
    assert (error["type"], error["message"]) == ("ValueError", "bad shape")


@pytest.mark.parametrize(("source", "expected"), [("import os; os.kill(os.getpid(), 9)", True), ("exit(1)", False)])
def test_out_of_memory_is_what_the_engine_says_of_a_container_that_was_killed(
    cloud: Cloud, vm: Vm, docker: Docker, source: str, expected: bool
) -> None:
    (docker.engine / "out-of-memory").touch()
    docker.push(source)
    cloud.direct(1, 1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["out_of_memory"] is expected


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [
        ("nothing", 127, '"nothing": executable file not found'),
        ("what-tini-cannot-find", 127, "No such file or directory"),
        ("what-catatonit-cannot-find", 127, "cannot run what-catatonit-cannot-find: No such file or directory"),
        ("what-catatonit-cannot-run", 126, "cannot run what-catatonit-cannot-run: Permission denied"),
    ],
)
def test_a_command_that_is_not_in_the_image_is_the_users_failure(
    cloud: Cloud, vm: Vm, docker: Docker, command: str, status: int, words: str
) -> None:
    docker.push("")
    vm.gang(container={"image": IMAGE, "command": [command]}, python_module="")
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]["type"]) == ("process", status, "ContainerError")
    assert words in body["error"]["message"]


def test_an_engine_that_cannot_start_the_container_is_an_internal_failure(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("")
    (docker.engine / "broken").touch()
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]["type"]) == ("setup", 125, "ContainerError")
    assert "could not select device driver" in body["error"]["message"]


def test_a_directive_ends_the_container_with_sigterm(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push(
        """
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("SAVED", flush=True)))
        print("START", flush=True)
        signal.pause()
        """
    )
    cloud.direct(1, 1)
    vm.boot()
    vm.wait_for_line("START")
    cloud.direct(1, 2)
    vm.wait_for_line("SAVED")
    vm.wait_for_line("START", 2)
    cloud.wait_for_message("vm-ready", (1, 2))
    assert cloud.said() == [("vm-ready", (1, 1)), ("vm-ready", (1, 2))]


def test_a_container_that_clings_to_life_is_killed_after_its_grace(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push(f"import signal; signal.signal(15, signal.SIG_IGN)\n{BLOCKS}")
    vm.gang(container={"image": IMAGE, "command": []}, python_module="", grace_s=0.3)
    cloud.direct(1, 1)
    vm.boot()
    pid = int(vm.wait_for_number("PID "))
    cloud.direct(1, 1, "stop")
    vm.wait_for_line("[trainmaster] Module ended on purpose with signal 9.")
    assert not is_alive(pid)
    assert docker.containers() == []


def test_what_an_earlier_agent_left_running_is_removed_and_nothing_of_other_vms(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    docker.push(BLOCKS)
    cloud.direct(1, 1)
    vm.boot()
    pid = int(vm.wait_for_number("PID "))
    fake = {"labels": ["trainmaster-vm=another"], "pid": 0, "exit": 0, "started": "2026", "oom": False}
    (docker.engine / "containers" / "another").write_text(json.dumps(fake))
    cloud.wait_for_message("vm-ready")
    vm.power_off()
    assert is_alive(pid)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_restarted"
    vm.wait_for_line("[trainmaster] Removed 1 containers of an earlier incarnation of the agent.")
    assert not is_alive(pid)
    assert docker.containers() == ["another"]


def test_a_secret_is_in_the_containers_environment_and_on_no_command_line(cloud: Cloud, vm: Vm, docker: Docker) -> None:
    docker.push("import os; print('KEY', len(os.environ['API_KEY']), os.environ['API_KEY'] == 's3cret\\nline')")
    cloud.secrets["projects/p/secrets/key/versions/latest"] = b"s3cret\nline"
    vm.gang(container={"image": IMAGE, "command": []}, python_module="", secrets={"API_KEY": "key"})
    cloud.direct(1, 1)
    vm.boot()
    assert vm.wait_for_line("KEY") == "KEY 11 True"
    cloud.wait_for_message("replica-exit")
    assert "s3cret" not in (docker.engine / "calls").read_text()


def test_credentials_are_for_nobody_elses_eyes(cloud: Cloud, vm: Vm, tmp_path: Path) -> None:
    from shared.agent.setup.container_image import write_credentials

    write_credentials(tmp_path / "credentials", "gcr.io", "t")
    assert stat.S_IMODE((tmp_path / "credentials" / "config.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "credentials").stat().st_mode) == 0o700


def test_signal_numbers_of_a_killed_engine_call_are_not_taken_for_the_containers(
    cloud: Cloud, vm: Vm, docker: Docker
) -> None:
    """As when something kills `docker run` itself: the container must not go on without it."""
    docker.push(BLOCKS)
    cloud.direct(1, 1)
    vm.boot()
    pid = int(vm.wait_for_number("PID "))
    cli = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(cli, signal.SIGKILL)
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["signal"]) == ("process", 9)
    assert not is_alive(pid)
