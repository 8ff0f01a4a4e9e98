"""Entrances for jobs and their packages, and the documents of jobs that inputs are made of."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from tests.fuzz.entrance import Entrance, Entrances, RefusedError
from tests.support.archives import sdist, wheel
from tests.support.jobs import a_spec, a_tuning_spec
from tests.support.world import World
from trainmaster.flows import submit
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.jobspec.job_document import read_document, with_time_in_job_id
from trainmaster.program_files.archives import open_archive
from trainmaster.program_files.packages import all_files, check_packages, has_module
from trainmaster.program_files.requirements import RuntimePackages

POOL: Final = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": 1,
    "containerSpec": {"imageUri": "gcr.io/p/i", "env": [{"name": "A", "value": "b"}]},
}
MANIFEST: Final[dict[str, Any]] = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "x", "annotations": {"trainmaster": "region: us-central1"}},
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {
                "replicas": 1,
                "template": {
                    "spec": {
                        "containers": [
                            {
                                "name": "pytorch",
                                "image": "gcr.io/p/i",
                                "args": ["1"],
                                "resources": {"limits": {"cpu": "4", "memory": "8Gi"}},
                            }
                        ]
                    }
                },
            }
        }
    },
}
SERVICE_JOBS: Final[tuple[dict[str, object], ...]] = (
    {"jobId": "digits_{time}", **a_spec(), "trainmaster": {"env": {"A": "b"}}},
    {"jobId": "tuning_1", **a_tuning_spec()},
    {"jobId": "digits_{time:%H%M%S}", **a_spec()},
)
"""Jobs of the old service."""
YAML_JOB: Final = yaml.safe_dump({"jobId": "y_1", **a_spec()}).encode()
_YAML_MANIFEST: Final = yaml.safe_dump(
    MANIFEST | {"metadata": MANIFEST["metadata"] | {"name": "z"}}
).encode()
JOBS: Final[tuple[object, ...]] = (
    *SERVICE_JOBS,
    {
        "jobId": "c1",
        "displayName": "x",
        "jobSpec": {"workerPoolSpecs": [POOL]},
        "trainmaster": {"region": "us-central1"},
    },
    MANIFEST,
    YAML_JOB,
    _YAML_MANIFEST,
)
SECRETS: Final = {"jobId": "s_1", **a_spec(), "trainmaster": {"secrets": {"K": "k"}}}
TASKS: Final = (
    {"workdir": "~/code", "setup": "pip install torch", "num_nodes": 2, "run": "torchrun x.py"},
    {"type": "task", "working_dir": ".", "commands": ["cd a", "python train.py"], "nodes": 2},
)
"""Tasks of other tools, which are converted to the end. The answer is an error."""
_PACKAGES: Final = (
    sdist("trainer/__init__.py", "trainer/task.py", form=""),
    wheel("trainer/__init__.py", "trainer/task.py"),
    [
        {"kind": "g", "content": "12 hello=ab\n", "times": 1},
        {"kind": "x", "content": "18 path=trainer/a\n"},
        {"name": "x"},
        {"kind": "L", "content": "trainer/__init__.py\0"},
        {"name": "y", "times": 3},
    ],
    [
        {"name": "a/trainer/__init__.py", "content": "from . import model\n"},
        {"name": "a/trainer/task.py", "content": "import os, einops\nprint 'a'\n"},
        {"name": "a/trainer/model.py", "content": "# coding: latin-1\nx = f'{1}'\n"},
        {"name": "a/setup.py", "content": "setup(install_requires=['torch<2'])\n"},
    ],
    [
        {"name": "a/trainer/task.py", "content": "import trainer.x.y\n", "times": 2},
        {"name": "a/x.egg-info/PKG-INFO", "content": "Metadata-Version: 2.1\n"},
        {"name": "a/x.egg-info/requires.txt", "content": "pandas\n[dev]\nrich\n"},
        {"name": "a/pyproject.toml", "content": "[project]\ndependencies = ['a']\n"},
        {"name": "a/setup.cfg", "content": "[options]\ninstall_requires =\n  a\n"},
    ],
)


def _read_file(data: bytes) -> object:
    document = with_time_in_job_id(read_document(data, "jobs/x.yaml"), datetime.now(UTC))
    return accept(document, default_job_id="x_1")


def _job_message() -> Entrance:
    world = World()
    return Entrance(lambda data: submit.handle(data, None, world.deps, world.now), JOBS)


def _packaged(data: bytes) -> None:
    """Read a package of a job: the bytes, or an archive of the members that a JSON list describes,
    so that most inputs have headers that are in order.
    """
    archive = open_archive(_archive_of(data), 64 << 20, 1 << 20)
    if archive is None:
        raise RefusedError("not judged")
    runtime = RuntimePackages("2.21", "3.12", RUNTIMES["2.21"].packages)
    for module in ("trainer.task", "trainer.tsak"):
        for finding in check_packages(module, [archive], runtime, 1 << 20):
            assert str(finding).isprintable()
    has_module("trainer.tsak", all_files([archive]))


def _archive_of(data: bytes) -> bytes:
    try:
        members = json.loads(data[: 64 << 10])
    except (ValueError, RecursionError):
        return data[: 1 << 20]  # larger packages are not opened
    content, size = io.BytesIO(), 0
    for member in members if isinstance(members, list) else []:
        if not isinstance(member, dict) or size > 80 << 20:
            continue
        inside = str(member.get("content", ""))[:100_000].encode(errors="replace")
        header = tarfile.TarInfo(str(member.get("name", "x"))[:90])
        header.type, header.size = str(member.get("kind", "0"))[:1].encode(), len(inside)
        block = header.tobuf(tarfile.PAX_FORMAT) + inside + bytes(-len(inside) % 512)
        times = member.get("times")
        block *= min(times, 3000) if isinstance(times, int) and times > 0 else 1
        size += content.write(block)
    return gzip.compress(content.getvalue()[: 80 << 20] + bytes(1024), 1)


SUBMISSIONS: Final[Entrances] = {
    "job file": lambda: Entrance(_read_file, [*JOBS, SECRETS, *TASKS]),
    "job message": _job_message,
    "package": lambda: Entrance(_packaged, _PACKAGES, memory_mib=128),
}
