"""Two containers with torchrun: their VMs are preempted in turn, and no rank loses a step."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Lab, lab_on
from tests.integration.containers.host_engine import HostEngine
from tests.support.stack import local_stack
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.process.stack_config import StackConfig

pytestmark = [pytest.mark.e2e, pytest.mark.emulator, pytest.mark.timeout(600)]

MEMBERS = (ReplicaId(TaskType.MASTER, 0), ReplicaId(TaskType.WORKER, 0))
RANKS = range(4)
STEP_S = 0.25
ROUND_S = 120
"""How long all ranks may take until they train after a preemption: the gang restarts together."""
NOTICE_S = 30
"""Time from the notice of a preemption to the end of the VM."""
SAVER = f"""
import os, signal, sys, time, urllib.error, urllib.parse, urllib.request

asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
rank, host = os.environ["RANK"], os.environ["STORAGE_EMULATOR_HOST"]
bucket, _, folder = sys.argv[sys.argv.index("--job-dir") + 1].removeprefix("gs://").partition("/")
name = urllib.parse.quote(f"{{folder}}/step-{{rank}}", safe="")
try:
    address = f"{{host}}/storage/v1/b/{{bucket}}/o/{{name}}?alt=media"
    step = int(urllib.request.urlopen(address).read())
except urllib.error.HTTPError:
    step = 0
print(f"rank {{rank}} begins after step {{step}}.", flush=True)
while not asked:
    time.sleep({STEP_S})
    step += 1
    print(f"rank {{rank}} step {{step}}.", flush=True)
address = f"{{host}}/upload/storage/v1/b/{{bucket}}/o?uploadType=media&name={{name}}"
request = urllib.request.Request(address, str(step).encode(), {{"Content-Type": "text/plain"}})
urllib.request.urlopen(request).read()
print(f"rank {{rank}} saved step {{step}}.", flush=True)
"""
"""Takes steps until SIGTERM, then saves the last one to Cloud Storage and exits with status 0."""
RUN = 'ENTRYPOINT ["sh", "-c", "torchrun --nproc-per-node=2 /app/saver.py \\"$@\\"; exit $?", "sh"]'


@pytest.fixture
def lab(host_engine: HostEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A local stack whose VMs use the engine."""
    folder = host_engine.install_client(tmp_path_factory.mktemp("bin"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", host_engine.host)
        patch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        with local_stack(tmp_path_factory.mktemp("stack"), StackConfig()) as stack:
            patch.undo()
            with lab_on(stack, tmp_path_factory.mktemp("packages")) as lab:
                yield lab


def output(lab: Lab, job_id: str, member: ReplicaId) -> str:
    """Return the serial output of all VMs that the replica has had."""
    serial = lab.stack.state_dir / "compute" / "serial"
    logs = serial.glob(f"{vm_name(job_id, member)}-*.log")
    return "".join(log.read_text(errors="replace") for log in logs)


def test_each_container_preempted_in_turn_loses_no_step_of_any_rank(
    lab: Lab, host_engine: HostEngine
) -> None:
    image = host_engine.image("trainmaster-tests/gang:1", {"app/saver.py": SAVER}, RUN)
    spec: dict[str, object] = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "masterConfig": {"imageUri": image},
        "workerType": "n1-standard-4",
        "workerCount": 1,
        "region": "us-central1",
        "jobDir": f"gs://{lab.bucket}/gang-{time.time_ns()}",
    }
    job_id = lab.upload({"trainingInput": spec}, "gang")

    def steps(pattern: str) -> list[int]:
        """Return the steps in all lines of that form, in ascending order."""
        text = "".join(output(lab, job_id, member) for member in MEMBERS)
        return sorted(int(step) for step in re.findall(pattern, text))

    def begins(rank: int) -> list[int]:
        """Return the last saved step at each start of the rank."""
        return steps(rf"rank {rank} begins after step (\d+)\.")

    lab.wait(job_id, "RUNNING")
    for number, member in enumerate(MEMBERS, start=1):
        lab.until(lambda: all(len(begins(rank)) == number for rank in RANKS), ROUND_S)  # noqa: B023
        time.sleep(3 * STEP_S)
        lab.faults.preempt(vm_name(job_id, member), NOTICE_S)
    starts = 1 + len(MEMBERS)
    lab.until(lambda: all(len(begins(rank)) == starts for rank in RANKS), ROUND_S)
    for rank in RANKS:
        saved = steps(rf"rank {rank} saved step (\d+)\.")
        assert begins(rank) == [0, *saved], lab.story(job_id)
        assert 0 < saved[0] < saved[1]
    state = lab.state(job_id)
    assert [replica.vm_generation for replica in state.replicas] == [2, 2]
    assert [replica.restarts_used for replica in state.replicas] == [0, 0]
    lab.cancel(job_id)
    assert host_engine.client.containers() == []
