"""The agent with a real engine, docker or podman: a job's container from its registry
to its exit.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.agent.support.cloud import Cloud
from tests.integration.agent.support.vm import Vm
from tests.integration.containers.engine import PREFIX, Client, Engine, running_podman

pytestmark = [
    pytest.mark.heavy(
        fact="the agent runs programs in real containers",
        quick=(
            "`integration/agent/test_container_program.py` and"
            " `integration/agent/test_container_engine.py` with a command in place of the engine"
        ),
    ),
    pytest.mark.timeout(600),
]

TASK = """
import json, os, signal, sys, time
if sys.argv[1] == "show":
    print("ARGV", json.dumps(sys.argv[1:]))
    print("ENV", json.dumps(dict(os.environ)))
    raise ValueError("bad shape")
if sys.argv[1] == "die":
    os.kill(os.getpid(), signal.SIGSEGV)
if sys.argv[1] == "report":
    with open("/tmp/hypertune/output.metrics", "w") as file:
        file.write(json.dumps({"accuracy": "0.93", "global_step": "7"}))
    sys.exit()
if sys.argv[1] == "save":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(print("SAVED")))
print("START")
time.sleep(600)
"""
DOCKERFILE = 'FROM {debian}\nCOPY task.py /task.py\nENTRYPOINT ["python3", "/task.py"]\n'


@pytest.fixture(scope="module")
def image(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An image that is in the registry only."""
    folder = tmp_path_factory.mktemp("image")
    (folder / "task.py").write_text(TASK)
    name = f"{engine.registry}/{PREFIX}/task:1"
    engine.build(name, DOCKERFILE.format(debian=engine.debian("bookworm")), folder)
    engine.docker("push", name)
    engine.docker("rmi", name)
    return name


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.close()


@pytest.fixture(scope="module", params=["docker", "podman"])
def client(request: pytest.FixtureRequest, engine: Engine) -> Iterator[Client]:
    """The engine of the VM. Docker builds the images for both engines."""
    if request.param == "docker":
        yield engine.client
    else:
        with running_podman(engine.registry) as client:
            yield client


@pytest.fixture
def vm(client: Client, cloud: Cloud, tmp_path: Path) -> Iterator[Vm]:
    vm = Vm(cloud, tmp_path)
    vm.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{client.environment['PATH']}"
    vm.environ.update(client.marks)
    yield vm
    vm.power_off()
    assert not client.containers() or client.run("rm", "--force", *client.containers())


def job(vm: Vm, image: str, *args: str, **changes: object) -> None:
    vm.configure(container={"image": image, "command": []}, python_module="", args=args, **changes)


def test_container_is_pulled_run_with_its_environment_and_removed(
    client: Client, cloud: Cloud, vm: Vm, image: str
) -> None:
    job(
        vm,
        image,
        "show",
        "a b",
        job_dir="gs://b/d",
        variables={"LINES": "one\ntwo", "DOCKER_HOST": "theirs"},
    )
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("process", 1)
    frame = "/task.py:6 in <module>"
    assert body["error"] == {
        "type": "ValueError",
        "message": "bad shape",
        "frame": frame,
        "own_frame": frame,
    }
    assert json.loads(vm.wait_for_line("ARGV ")[5:]) == ["show", "a b", "--job-dir", "gs://b/d"]
    env = json.loads(vm.wait_for_line("ENV ")[4:])
    assert (env["LINES"], env["DOCKER_HOST"]) == ("one\ntwo", "theirs")
    assert env["PATH"].startswith("/usr/local/sbin")
    vm.wait_for_line(f"[trainmaster] Pulling the image: {image}")
    assert client.containers() == []


def test_container_killed_by_a_signal_reports_128_plus_its_number(
    cloud: Cloud, vm: Vm, image: str
) -> None:
    job(vm, image, "die")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["signal"]) == ("process", 139, None)


def test_metric_of_a_trial_in_a_container_is_in_the_exit_event(
    cloud: Cloud, vm: Vm, image: str
) -> None:
    environment = {"CLOUD_ML_TRIAL_ID": "3", "CLOUD_ML_HP_METRIC_TAG": "accuracy"}
    job(vm, image, "report", environment=environment)
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["metric"] == {"value": 0.93, "step": 7}


def test_directive_lets_the_container_save_before_it_ends(
    client: Client, cloud: Cloud, vm: Vm, image: str
) -> None:
    job(vm, image, "save")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    cloud.direct(attempt=1, incarnation=2)
    vm.wait_for_line("SAVED")
    vm.wait_for_line("START", number=2)
    cloud.direct(attempt=1, incarnation=2, action="stop")
    vm.wait_for_line("[trainmaster] Module stopped as directed", number=2)
    assert client.containers() == []


def test_container_of_a_dead_agent_is_removed_by_the_next_agent(
    client: Client, cloud: Cloud, vm: Vm, image: str
) -> None:
    job(vm, image, "wait")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("START")
    vm.power_off()
    assert len(client.containers("status=running")) == 1
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["cause"] == "vm_restarted"
    assert client.containers() == []


@pytest.mark.parametrize(
    ("command", "status", "words"),
    [(["nothing"], 127, "nothing"), (["/etc"], 126, "/etc")],
)
def test_command_that_cannot_be_run_is_the_users_error(
    cloud: Cloud, vm: Vm, image: str, command: list[str], status: int, words: str
) -> None:
    vm.configure(container={"image": image, "command": command}, python_module="")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("process", status)
    assert words in body["error"]["message"]


def test_missing_image_is_reported_with_the_registrys_message(
    engine: Engine, cloud: Cloud, vm: Vm, image: str
) -> None:
    job(vm, f"{engine.registry}/{PREFIX}/nothing:1")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["error"]["type"]) == ("install", "ImageError")
    assert "manifest unknown" in body["error"]["message"] or "not found" in body["error"]["message"]


def test_registry_that_does_not_answer_is_an_internal_error(
    cloud: Cloud, vm: Vm, image: str
) -> None:
    job(vm, "127.0.0.1:1/nothing:1")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["error"]["type"]) == ("setup", "ImageError")
    assert "connection refused" in body["error"]["message"]
