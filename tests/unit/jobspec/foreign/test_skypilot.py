"""Tasks of SkyPilot are answered with the job file that they mean."""

from __future__ import annotations

import json

import pytest

from tests.unit.jobspec.foreign.reading import answer_to, notes_of

TASK = """
name: finetune-llama
workdir: ~/code
num_nodes: 2
resources:
  infra: gcp/us-central1/us-central1-a
  accelerators: A100:8
  use_spot: true
  disk_size: 256
  ports: 8081
envs:
  MODEL: opt
file_mounts:
  /data: gs://my-bucket/corpus
  /cfg: ./cfg
setup: |
  sudo apt-get install -y ffmpeg
  pip install -r requirements.txt
  pip install transformers "datasets==3.1"
  wandb login 0123secret
run: |
  MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
  torchrun --nnodes=$SKYPILOT_NUM_NODES --nproc_per_node=$SKYPILOT_NUM_GPUS_PER_NODE \\
    --node_rank=$SKYPILOT_NODE_RANK --master_addr=$MASTER_ADDR --master_port 8008 \\
    train.py --epochs 3
"""


def test_task_becomes_a_job_file_and_a_command() -> None:
    answer = answer_to(TASK)
    assert answer.tool == "SkyPilot"
    assert answer.job_file == {
        "jobId": "finetune_llama_{time}",
        "trainingInput": {
            "region": "us-central1",
            "scaleTier": "CUSTOM",
            "masterType": "a2-highgpu-8g",
            "masterConfig": {"diskConfig": {"bootDiskSizeGb": 256}},
            "workerType": "a2-highgpu-8g",
            "workerCount": 1,
            "workerConfig": {"diskConfig": {"bootDiskSizeGb": 256}},
            "args": ["torchrun", "--nproc_per_node=8", "train.py", "--epochs", "3"],
        },
        "trainmaster": {
            "zones": ["us-central1-a"],
            "spot": "all",
            "env": {"MODEL": "opt"},
            "gcs": True,
        },
    }
    assert answer.command == "trainmaster submit job.yaml --folder ~/code"


def test_fields_without_a_counterpart_are_named_with_what_to_do() -> None:
    notes = notes_of(TASK)
    assert set(notes) == {
        "resources.ports",
        "file_mounts./data",
        "file_mounts./cfg",
        "setup",
        "setup: apt-get install",
        "setup: wandb login",
    }
    assert notes["file_mounts./data"] == "read it as /gcs/my-bucket/corpus"
    assert "the folder" in notes["file_mounts./cfg"]
    assert notes["setup"] == "add to requirements.txt: transformers, datasets==3.1"
    assert "container" in notes["setup: apt-get install"]
    assert "bash run.sh" in notes["setup: wandb login"]
    assert "0123secret" not in str(notes)


@pytest.mark.parametrize(
    ("resources", "training"),
    [
        ("{accelerators: {L4: 2}}", {"masterType": "g2-standard-24"}),
        (
            "{accelerators: T4}",
            {
                "masterType": "n1-standard-4",
                "masterConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 1}},
            },
        ),
        ("{accelerators: 'H100:8'}", {"masterType": "a3-highgpu-8g"}),
        ("{accelerators: A100-80GB}", {"masterType": "a2-ultragpu-1g"}),
        ("{instance_type: n2-standard-8}", {"masterType": "n2-standard-8"}),
        ("{cpus: 16+, memory: 32+}", {"masterType": "n1-standard-16"}),
        (
            "{accelerators: tpu-v5litepod-8}",
            {
                "masterType": "cloud_tpu",
                "masterConfig": {"acceleratorConfig": {"type": "TPU_V5_LITEPOD", "count": 8}},
            },
        ),
        ("{cloud: gcp, region: us-east1, zone: us-east1-b}", {"region": "us-east1"}),
    ],
)
def test_resources_become_a_machine(resources: str, training: dict[str, object]) -> None:
    answer = answer_to(f"resources: {resources}\nrun: python train.py\n")
    found = answer.job_file["trainingInput"]
    assert {name: found.get(name) for name in training} == training
    assert answer.notes == ()


def test_alternatives_become_a_placement() -> None:
    answer = answer_to(
        """
resources:
  use_spot: true
  ordered:
    - {infra: gcp/us-central1, accelerators: H100:8}
    - {infra: gcp/us-east5, accelerators: A100-80GB:8, use_spot: false}
    - {infra: aws/us-east-1, accelerators: H100:8}
run: python train.py
"""
    )
    assert answer.job_file["trainingInput"]["masterType"] == "a3-highgpu-8g"
    assert answer.job_file["trainmaster"] == {
        "spot": "all",
        "placement": {
            "ordered": [
                {
                    "regions": ["us-central1"],
                    "machineSpec": {"machineType": "a3-highgpu-8g"},
                    "spot": "all",
                },
                {
                    "regions": ["us-east5"],
                    "machineSpec": {"machineType": "a2-ultragpu-8g"},
                    "spot": "none",
                },
            ]
        },
    }
    assert [note.field for note in answer.notes] == ["resources.ordered[2].infra"]


def test_image_becomes_a_container_that_has_the_files() -> None:
    answer = answer_to(
        """
resources: {image_id: "docker:us-docker.pkg.dev/p/r/trainer:1"}
workdir: .
run: |
  cd /app
  python train.py
"""
    )
    assert answer.job_file["trainingInput"]["masterConfig"] == {
        "imageUri": "us-docker.pkg.dev/p/r/trainer:1",
        "containerCommand": ["bash", "-ec", "cd /app\npython train.py"],
    }
    assert answer.command == "trainmaster submit job.yaml"
    assert [note.field for note in answer.notes] == ["workdir"]


@pytest.mark.parametrize(
    ("folder", "word"),
    [
        (".", "."),
        ("~/code", "~/code"),
        ("~/", "~/"),
        ("~/my code", "~/'my code'"),
        ("$(touch x)", "'$(touch x)'"),
        ("~/$(touch x)", "~/'$(touch x)'"),
        ("~root/x; touch x", "'~root/x; touch x'"),
        (". && touch x", "'. && touch x'"),
        ("it's", """'it'"'"'s'"""),
        ("a\ntouch x", "'a\ntouch x'"),
    ],
)
@pytest.mark.parametrize("field", ["workdir", "working_dir"])
def test_folder_is_one_word_of_the_command_that_users_copy(
    field: str, folder: str, word: str
) -> None:
    beside = {"workdir": "envs: {}", "working_dir": "type: task\ncommands: [python train.py]"}
    run = "\nrun: python train.py" if field == "workdir" else ""
    answer = answer_to(f"{beside[field]}{run}\n{field}: {json.dumps(folder)}")
    assert answer.command == f"trainmaster submit job.yaml --folder {word}"


def test_script_of_several_lines_stays_a_script() -> None:
    answer = answer_to(
        """
num_nodes: 3
run: |
  echo "rank $SKYPILOT_NODE_RANK of $SKYPILOT_NUM_NODES"
  python train.py --peers "$SKYPILOT_NODE_IPS"
"""
    )
    assert answer.job_file["trainingInput"]["args"] == [
        "bash",
        "-ec",
        'echo "rank $RANK of 3"\npython train.py --peers "$SKYPILOT_NODE_IPS"',
    ]
    assert [note.field for note in answer.notes] == ["SKYPILOT_NODE_IPS"]


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("secrets: {HF_TOKEN: hf_abc}", "secrets.HF_TOKEN"),
        ("envs: {HF_TOKEN: null}", "envs.HF_TOKEN"),
        ("service: {replicas: 2}", "service"),
        ("resources: {accelerators: MI300X:8}", "resources.accelerators"),
        ("resources: {infra: aws}", "resources.infra"),
        ("resources: {cloud: lambda}", "resources.cloud"),
        ("resources: {image_id: skypilot:gpu-ubuntu-2004}", "resources.image_id"),
        ("resources: {job_recovery: {max_restarts_on_errors: 3}}", "resources.job_recovery"),
        ("workdir: {url: https://example.com/x.git}", "workdir"),
        ("num_nodes: many", "num_nodes"),
        ("frobnicate: 1", "frobnicate"),
    ],
)
def test_field_that_cannot_be_mapped_is_named_without_its_value(line: str, field: str) -> None:
    head = "" if line.startswith(("resources", "workdir", "num_nodes", "envs")) else "envs: {}\n"
    answer = answer_to(f"{head}run: python train.py\n{line}\n")
    assert field in [note.field for note in answer.notes]
    assert "hf_abc" not in str(answer)


@pytest.mark.parametrize(
    ("setup", "packages"),
    [
        ("pip install -r requirements.txt", None),
        ("git clone https://github.com/a/b\n  cd b/c\n  pip install -r requirements.txt", "b/c/"),
        ("cd b\n  cd c && ls\n  uv pip install -r ./requirements.txt", "b/c/"),
        ("cd /\n  pip install -r requirements.txt", "/"),
    ],
    ids=["the folder's own", "a clone", "two steps", "the root"],
)
def test_requirements_of_another_folder_than_the_jobs_are_named(
    setup: str, packages: str | None
) -> None:
    notes = notes_of(f"name: a\nsetup: |\n  {setup}\nrun: python train.py\n")
    texts = [text for text in notes.values() if "requirements.txt" in text]
    expected = f"add to requirements.txt: the lines of {packages}requirements.txt"
    assert texts == ([] if packages is None else [expected])
