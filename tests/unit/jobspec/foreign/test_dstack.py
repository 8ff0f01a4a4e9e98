"""Configurations of dstack are answered with the job file that they mean."""

from __future__ import annotations

import pytest

from tests.unit.jobspec.foreign.reading import answer_to, notes_of

TASK = """
type: task
name: train-distrib
nodes: 4
python: 3.12
env:
  - NCCL_DEBUG=INFO
  - HF_TOKEN
commands:
  - pip install -r requirements.txt
  - |
    torchrun \\
      --nproc-per-node=$DSTACK_GPUS_PER_NODE \\
      --node-rank=$DSTACK_NODE_RANK \\
      --nnodes=$DSTACK_NODES_NUM \\
      --master-addr=$DSTACK_MASTER_NODE_IP \\
      --master-port=12345 \\
      multinode.py 50 10
regions: [us-central1]
spot_policy: auto
max_duration: 6h
resources:
  gpu: A100:40GB:1
  disk: 200GB..
  shm_size: 16GB
"""


def test_configuration_becomes_a_job_file_and_a_command() -> None:
    answer = answer_to(TASK)
    assert answer.tool == "dstack"
    assert answer.job_file == {
        "jobId": "train_distrib_{time}",
        "trainingInput": {
            "region": "us-central1",
            "scaleTier": "CUSTOM",
            "masterType": "a2-highgpu-1g",
            "masterConfig": {"diskConfig": {"bootDiskSizeGb": 200}},
            "workerType": "a2-highgpu-1g",
            "workerCount": 3,
            "workerConfig": {"diskConfig": {"bootDiskSizeGb": 200}},
            "args": ["torchrun", "--nproc-per-node=1", "multinode.py", "50", "10"],
            "scheduling": {"maxRunningTime": "21600s"},
        },
        "trainmaster": {
            "env": {"NCCL_DEBUG": "INFO"},
            "placement": {"anyOf": [{"spot": "all"}, {"spot": "none"}]},
        },
    }
    assert answer.command == "trainmaster submit job.yaml --folder ."


def test_fields_without_a_counterpart_are_named_with_what_to_do() -> None:
    notes = notes_of(TASK)
    assert set(notes) == {"env.HF_TOKEN", "python", "resources.shm_size"}
    assert "secrets" in notes["env.HF_TOKEN"]
    assert "runtime" in notes["python"]


@pytest.mark.parametrize(
    ("resources", "machine"),
    [
        ("{gpu: L4:2}", "g2-standard-24"),
        ("{gpu: {name: H100, count: 8}}", "a3-highgpu-8g"),
        ("{gpu: 'nvidia:A100:80GB:1..4'}", "a2-ultragpu-1g"),
        ("{gpu: {name: [A100, H100], memory: 80GB, count: 2..}}", "a2-ultragpu-2g"),
        ("{cpu: 16.., memory: 64GB..}", "n1-highmem-16"),
        ("{cpu: 'x86:4'}", "n1-standard-4"),
        ("{gpu: v5litepod-4}", "cloud_tpu"),
    ],
)
def test_resources_become_a_machine(resources: str, machine: str) -> None:
    answer = answer_to(f"type: task\ncommands: [python train.py]\nresources: {resources}\n")
    assert answer.job_file["trainingInput"]["masterType"] == machine


def test_gpu_by_memory_alone_is_named() -> None:
    notes = notes_of("type: task\ncommands: [python train.py]\nresources: {gpu: 24GB}\n")
    assert "trainmaster machines" in notes["resources.gpu"]


def test_image_becomes_a_container() -> None:
    answer = answer_to("type: task\nimage: nvcr.io/nvidia/pytorch:25.01-py3\ncommands: [a, b]\n")
    assert answer.job_file["trainingInput"]["masterConfig"] == {
        "imageUri": "nvcr.io/nvidia/pytorch:25.01-py3",
        "containerCommand": ["bash", "-ec", "a\nb"],
    }


@pytest.mark.parametrize("kind", ["dev-environment", "service"])
def test_configuration_that_is_no_task_says_so(kind: str) -> None:
    notes = notes_of(f"type: {kind}\ncommands: [python serve.py]\n")
    assert "only training" in notes["type"]
