"""The root of an emulated VM: nothing can be written below /gcs until gcsfuse is mounted, which any
user may do, and /dev/shm is the VM's own.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from pathlib import Path
from typing import Final

import pytest

from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.machines import vm_init
from trainmaster_emulators.machines.gcsfuse.server import find_obstacle
from trainmaster_emulators.services import storage

pytestmark = [pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())]

NOBODY: Final = 65534
SYSTEM_PYTHON: Final = "/usr/bin/python3"
MOUNT: Final = f"""
echo "user $(id -u)"
mkdir /gcs/{{bucket}} || echo "before"
{{python}} -c "import sys; sys.path.insert(0, '{ROOT}/emulators')
from trainmaster_emulators.machines.gcsfuse.server import main
main()" /gcs &
for _ in $(seq 600); do grep -q fuse.gcsfuse /proc/self/mounts && break; sleep 0.05; done
mkdir /gcs/{{bucket}}/model && echo weights >/gcs/{{bucket}}/model/model.bin
{{python}} -c "import ctypes; print('unmount', ctypes.CDLL(None).umount2(b'/gcs', 0))"
wait
mkdir /gcs/{{bucket}} || echo "after"
kill $PPID
"""
"""Try to write below /gcs, mount gcsfuse there, write, unmount it, and try again: only the second
time may succeed. Parameters: bucket, python.
"""
FORBIDDEN: Final = f"""
umount /gcs && rmdir /gcs
setpriv --bounding-set -sys_admin --inh-caps -sys_admin \\
  {{python}} {vm_init.__file__} {{inner}} {{tmp}} /no-marker < <(sleep 30)
echo never
"""
"""Start a VM inside of this one, in which root has lost the right to mount; `inner` is its script.
Its standard input stays open, because the end of it would power the VM off.
"""


def run_vm(folder: Path, script: str, python: str, user: int, **environ: str) -> str:
    """Run a script as a VM runs its startup script, until the script kills the VM; return the
    output.
    """
    (folder / "tmp").mkdir(parents=True, exist_ok=True)
    (folder / "script").write_text(script)
    for path in (folder, folder / "tmp", folder / "script"):
        path.chmod(0o777)
    no_marker = folder / "none"  # no file: the VM has no containers to clean up
    argv = [python, "-I", "-S", vm_init.__file__]
    argv += map(str, (folder / "script", folder / "tmp", no_marker))
    identity = {"user": user, "group": user, "extra_groups": []} if user != os.geteuid() else {}
    with subprocess.Popen(
        argv,
        cwd=folder,
        env={"PATH": os.defpath, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **identity,  # type: ignore[call-overload]
    ) as vm:
        return str(vm.stdout.read())


@pytest.mark.parametrize("user", [0, NOBODY])
def test_bucket_is_mounted_by_root_and_by_another_user(storage_emulator: str, user: int) -> None:
    if os.geteuid() != 0:
        user = os.geteuid()
    elif user and not Path(SYSTEM_PYTHON).exists():
        pytest.skip("the other user may not run this interpreter")
    elif user and not Path("/dev/fuse").stat().st_mode & stat.S_IWOTH:
        pytest.skip("only root may use /dev/fuse")
    bucket = f"vm-{uuid.uuid4().hex[:12]}"
    storage.create_bucket(storage_emulator, "p", bucket)
    python = SYSTEM_PYTHON if user else sys.executable
    endpoint = f"http://{storage_emulator}"
    # Pytest's folders are closed to other users.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        output = run_vm(
            Path(folder),
            MOUNT.format(bucket=bucket, python=python),
            python,
            user,
            STORAGE_EMULATOR_HOST=endpoint,
        )
    assert f"user {user}\n" in output
    assert output.count("Read-only file system") == 2, output
    assert "unmount 0" in output
    with urllib.request.urlopen(
        f"{endpoint}/storage/v1/b/{bucket}/o/model%2Fmodel.bin?alt=media"
    ) as response:
        assert response.read() == b"weights\n"
    assert not any(Path("/gcs").glob(bucket))


def test_shared_memory_of_a_vm_is_its_own(tmp_path: Path) -> None:
    name = f"tm-test-{uuid.uuid4().hex}"
    script = f"ls /dev/shm | wc -l; touch /dev/shm/{name} && ls /dev/shm; kill $PPID\n"
    output = run_vm(tmp_path / "vm", script, sys.executable, os.geteuid())
    assert output.startswith(f"0\n{name}\n")
    assert not Path("/dev/shm", name).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can lose the right to mount")
def test_root_without_the_right_to_mount_can_write_nothing_below_gcs(tmp_path: Path) -> None:
    inner, tmp = tmp_path / "inner", tmp_path / "inner-tmp"
    tmp.mkdir()
    inner.write_text("mkdir -p /gcs/bucket || echo refused\nkill $PPID\n")
    script = FORBIDDEN.format(python=sys.executable, inner=inner, tmp=tmp) + "kill $PPID\n"
    output = run_vm(tmp_path / "vm", script, sys.executable, 0)
    assert "Not a directory\nrefused\n" in output
