"""A program in a container gets the same answers as a module: one story each, on the real engine.

docs/containers.md has the table.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent.support.cloud import Cloud
from tests.integration.agent.support.vm import Vm, is_alive
from tests.integration.containers.host_engine import PYTORCH, HostEngine
from trainmaster.agent.program.process_table import read_oom_kill_counts

pytestmark = pytest.mark.timeout(300)

LIMIT = "128m"
NUMBERS = count(1)
AT_ONCE = 'ENTRYPOINT ["python3", "-u", "/app/trainer/task.py"]'
IN_SHELL = "ENTRYPOINT python3 -u /app/trainer/task.py; exit $?"
IN_PIPE = "ENTRYPOINT python3 -u /app/trainer/task.py 2>&1 | cat"


@dataclass
class Site:
    """A VM, and how its job runs a program: as a module or in a container."""

    kind: str
    cloud: Cloud
    vm: Vm
    engine: HostEngine

    def program(self, source: str, *configuration: str, **config: Any) -> None:
        """Set the job's program. `configuration`: of its image. `config`: of the VM."""
        source = textwrap.dedent(source)
        if self.kind == "module":
            self.vm.program(source)
            self.vm.configure(**config)
        else:
            name = f"trainmaster-tests/story:{next(NUMBERS)}"
            files = {"app/trainer/task.py": source}
            self.engine.image(name, files, *(configuration or (AT_ONCE,)))
            container = {"image": name, "command": []}
            self.vm.configure(**{"container": container, "python_module": "", **config})

    def run(self) -> dict[str, Any]:
        """Boot the VM, and return the exit of its program."""
        self.cloud.direct(attempt=1, incarnation=1)
        self.vm.boot()
        return self.cloud.wait_for_message("replica-exit").body


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud()
    yield cloud
    cloud.close()


@pytest.fixture
def vm(host_engine: HostEngine, cloud: Cloud, tmp_path: Path) -> Iterator[Vm]:
    vm = Vm(cloud, tmp_path)
    # The agent finds the processes of a container by the id of its VM, on all of this machine.
    cloud.set("instance/id", str(secrets.randbelow(10**18)))
    folder = tmp_path / "bin"
    folder.mkdir()
    host_engine.install_client(folder, f"--memory={LIMIT}", f"--memory-swap={LIMIT}")
    vm.environ["PATH"] = f"{folder}{os.pathsep}{vm.environ['PATH']}"
    yield vm
    vm.power_off()
    if left := host_engine.client.containers():
        host_engine.client.run("rm", "--force", *left)
    assert not vm.lines("[trainmaster] Unexpected change")


@pytest.fixture(params=["module", "container"])
def site(request: pytest.FixtureRequest, cloud: Cloud, vm: Vm, host_engine: HostEngine) -> Site:
    return Site(request.param, cloud, vm, host_engine)


@pytest.fixture
def container(cloud: Cloud, vm: Vm, host_engine: HostEngine) -> Site:
    return Site("container", cloud, vm, host_engine)


BUSY = """
    import os, sys, time
    {first}
    end = time.monotonic() + 5
    while time.monotonic() < end:
        sum(range(200_000))
        time.sleep(0.02)
"""


@pytest.mark.parametrize(
    "first", ["", "os.fork() and sys.exit(os.wait()[1])"], ids=["itself", "in a child"]
)
def test_program_that_is_busy_in_silence_lives(site: Site, first: str) -> None:
    site.program(BUSY.format(first=first), still_s=2)
    body = site.run()
    assert (body["cause"], body["exit_status"]) == ("process", 0)


HANGS = """
    import os, signal, sys, time
    def load_batch():
        print("START", flush=True)
        time.sleep(600)
    {first}
    load_batch()
"""


@pytest.mark.parametrize(
    ("first", "configuration"),
    [
        pytest.param("", AT_ONCE, id="itself"),
        pytest.param("os.fork() and os.wait()", AT_ONCE, id="in a child"),
        pytest.param("", IN_SHELL, id="below a shell"),
        pytest.param("os.setuid(1000)", AT_ONCE, id="as another user"),
    ],
)
def test_program_that_hangs_is_ended_with_its_stacks(
    site: Site, first: str, configuration: str
) -> None:
    site.program(HANGS.format(first=first), configuration, still_s=2)
    body = site.run()
    assert (body["cause"], body["error"]["type"]) == ("stalled", "Still")
    assert body["error"]["own_frame"].startswith("trainer/task.py:")
    assert any(b"task.py" in line and line.endswith(b" in load_batch") for line in site.vm.console)


SAVES = """
    import os, signal, sys, time
    def save(number, _):
        signal.signal(number, signal.SIG_DFL)
        print("SAVING", flush=True)
        time.sleep(1.5)
        print("SAVED", flush=True)
        sys.exit(0)
    signal.signal(signal.{name}, save)
    print("START", flush=True)
    while True:
        time.sleep(0.1)
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGUSR1"])
def test_notice_and_shutdown_are_one_signal(site: Site, name: str) -> None:
    """The handler restores the default, which is common: a second signal would end the program."""
    site.program(SAVES.format(name=name), save_on_notice="replica", checkpoint_signal=name)
    site.cloud.direct(attempt=1, incarnation=1)
    site.vm.boot()
    site.vm.wait_for_line("START")
    site.cloud.set("instance/preempted", "TRUE")
    site.vm.wait_for_line("SAVING")
    site.vm.terminate()
    site.vm.wait()
    assert site.vm.lines("SAVED")


@pytest.mark.parametrize("configuration", [AT_ONCE, IN_SHELL, IN_PIPE])
def test_engine_that_is_stopped_with_the_vm_interrupts_no_save(
    container: Site, configuration: str
) -> None:
    container.program(SAVES.format(name="SIGTERM"), configuration, save_on_notice="replica")
    container.cloud.direct(attempt=1, incarnation=1)
    container.vm.boot()
    container.vm.wait_for_line("START")
    container.cloud.set("instance/preempted", "TRUE")
    container.vm.wait_for_line("SAVING")
    (name,) = container.engine.client.containers()
    environment = container.engine.client.environment
    with subprocess.Popen(["docker", "stop", name], env=environment, stdout=subprocess.DEVNULL):
        container.vm.terminate()
        container.vm.wait()
    assert container.vm.lines("SAVED")


@pytest.mark.parametrize("configuration", [AT_ONCE, IN_SHELL, IN_PIPE])
def test_program_of_a_cancelled_job_gets_its_signal(container: Site, configuration: str) -> None:
    container.program(SAVES.format(name="SIGTERM"), configuration)
    container.cloud.direct(attempt=1, incarnation=1)
    container.vm.boot()
    container.vm.wait_for_line("START")
    container.cloud.direct(attempt=1, incarnation=1, action="stop")
    container.vm.wait_for_line("[trainmaster] Module stopped as directed")
    assert container.vm.lines("SAVED")


RANK = """
    import os, signal, sys, time
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
    os.write(1, f"START {os.environ['RANK']}\\n".encode())  # whole lines of both ranks
    while not asked:
        time.sleep(0.1)
    time.sleep(1)
    os.write(1, f"SAVED {os.environ['RANK']} {len(asked)}\\n".encode())
"""


def test_ranks_of_torchrun_are_asked_to_save_and_torchrun_is_not(
    site: Site, tmp_path: Path, host_engine: HostEngine
) -> None:
    host_engine.install_client(tmp_path / "bin")  # torch needs more memory
    path = site.vm.environ["PATH"].split(os.pathsep)
    site.vm.environ["PATH"] = os.pathsep.join([path[0], f"{PYTORCH}/bin", *path[1:]])
    options = ["--standalone", "--nproc-per-node=2", "-m", "trainer.task"]
    config: dict[str, Any] = {"args": options, "environment": {}, "rank_base": None}
    if site.kind == "module":
        config["python_module"] = "torch.distributed.run"
    run = 'ENTRYPOINT ["sh", "-c", "cd /app && torchrun \\"$@\\"; exit $?", "sh"]'
    site.program(RANK, run, **config)
    site.cloud.direct(attempt=1, incarnation=1)
    site.vm.boot()
    for rank in (0, 1):
        site.vm.wait_for_line(f"START {rank}")
    site.cloud.direct(attempt=1, incarnation=1, action="save")
    body = site.cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("saved", 0)
    for rank in (0, 1):
        assert site.vm.lines(f"SAVED {rank} 1")
    site.vm.wait_for_line(
        "[trainmaster] All members of the job save now: SIGTERM was sent to 2 processes."
    )


EATS = """
    import os, subprocess, sys
    eat = "x = []\\nwhile True: x.append(bytearray(os.urandom(1 << 20)))"
    if {in_child}:
        subprocess.run([sys.executable, "-c", "import os\\n" + eat], check=True)
    exec(eat)
"""


@pytest.mark.parametrize("in_child", [False, True], ids=["itself", "a child"])
def test_container_without_memory_is_reported(container: Site, *, in_child: bool) -> None:
    container.program(EATS.format(in_child=in_child))
    body = container.run()
    assert (body["cause"], body["out_of_memory"]) == ("process", True)


@pytest.mark.parametrize(
    ("end", "status", "number"),
    [
        ("sys.exit(0)", 0, None),
        ("sys.exit(3)", 3, None),
        ("sys.exit(125)", 125, None),
        ("sys.exit(127)", 127, None),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 139, signal.SIGSEGV),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, signal.SIGKILL),
    ],
)
def test_exit_is_the_programs_own(
    site: Site, end: str, status: int, number: signal.Signals | None
) -> None:
    site.program(f"import os, signal, sys\n{end}")
    kills = read_oom_kill_counts()
    body = site.run()
    expected = (None, number) if number and site.kind == "module" else (status, None)
    assert body["cause"] == "process"
    assert (body["exit_status"], body["signal"]) == expected
    # The counter is this machine's: programs of other tests run out of memory on purpose.
    assert not body["out_of_memory"] or read_oom_kill_counts() != kills


DAEMON = """
    import os, time
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            print("DAEMON", os.getpid(), flush=True)
            time.sleep(600)
        os._exit(0)
    os.wait()
    time.sleep(1)
"""


def test_daemon_ends_with_its_program(site: Site) -> None:
    site.program(DAEMON)
    body = site.run()
    assert body["exit_status"] == 0
    if site.kind == "module":
        assert not is_alive(int(site.vm.wait_for_number("DAEMON ")))
    assert site.engine.client.containers() == []


def test_container_cannot_write_below_gcs(container: Site) -> None:
    container.program("""
        import os
        print("GCS", os.listdir("/gcs"))
        open("/gcs/lost", "w")
    """)
    error = container.run()["error"]
    assert container.vm.lines("GCS []")
    assert error["type"] == "OSError"
    assert "Read-only file system" in error["message"]


@pytest.mark.parametrize(
    ("configuration", "words"),
    [
        (["ENV A=B"], "neither the job nor the image names a command"),
        (["USER nobody-here", AT_ONCE], "unable to find user nobody-here"),
        (["USER user:no-group", AT_ONCE], "unable to find group no-group"),
        (["WORKDIR /etc/passwd", AT_ONCE], "/etc/passwd is not a directory"),
        (["WORKDIR /etc/passwd/below", AT_ONCE], "not a directory"),
        (['ENTRYPOINT ["missing"]'], "missing"),
        (['ENTRYPOINT ["/etc"]'], "/etc"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_wrong_image_is_the_users_permanent_error(
    container: Site, configuration: list[str], words: str
) -> None:
    container.program("", *configuration)
    body = container.run()
    assert (body["cause"], body["error"]["type"]) == ("process", "ContainerError")
    assert body["exit_status"] in (126, 127)
    assert words in body["error"]["message"]
    assert "docker run --help" not in body["error"]["message"]


def test_pull_that_fails_names_the_image(container: Site) -> None:
    container.vm.configure(
        container={"image": "127.0.0.1:1/no/such:1", "command": []}, python_module=""
    )
    body = container.run()
    assert (body["cause"], body["error"]["type"]) == ("setup", "ImageError")
    assert "cannot pull 127.0.0.1:1/no/such:1" in body["tail"]


def test_shared_memory_is_the_containers_own_and_as_large_as_the_vms(container: Site) -> None:
    container.program("""
        import os
        print("SHARED", os.listdir("/dev/shm"), os.statvfs("/dev/shm").f_blocks * 4096)
    """)
    container.run()
    own = os.statvfs("/dev/shm")
    container.vm.wait_for_line(f"SHARED [] {own.f_blocks * own.f_frsize}")
