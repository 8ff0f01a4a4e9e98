"""Files of other tools are refused everywhere, with the job file or the page that they mean."""

from __future__ import annotations

import re
from textwrap import dedent

import pytest

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import read_document
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

SKYPILOT = "name: train\nnum_nodes: 2\nworkdir: ~/code\nrun: torchrun train.py\n"
DSTACK = "type: task\nnodes: 4\ncommands:\n  - torchrun train.py\n"


@pytest.mark.parametrize(
    ("text", "title", "command"),
    [
        (SKYPILOT, "a task of SkyPilot", "trainmaster submit job.yaml --folder ~/code"),
        (DSTACK, "a configuration of dstack", "trainmaster submit job.yaml --folder ."),
    ],
    ids=["SkyPilot", "dstack"],
)
def test_file_of_another_tool_is_answered_at_every_entrance(
    text: str, title: str, command: str
) -> None:
    with pytest.raises(InvalidJob) as raised:
        read_document(text.encode(), "task.yaml")
    (found,) = raised.value.problems
    assert title in found.problem
    assert command in found.example
    assert found.example.startswith("trainmaster convert task.yaml > job.yaml && ")


def test_document_that_skipped_the_reader_is_refused_with_the_command_that_converts_it() -> None:
    with pytest.raises(InvalidJob) as raised:
        accept(parse_document(SKYPILOT.encode(), "task.yaml"), default_job_id="task")
    assert raised.value.problems[0].example == "trainmaster convert task.yaml > job.yaml"


@pytest.mark.parametrize("text", ["run: 3\n", "type: task\n", "run: python train.py\n"])
def test_other_file_is_read_as_a_job_file(text: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        accept(read_document(text.encode(), "task.yaml"), default_job_id="task")
    assert "SkyPilot" not in str(raised.value)
    assert "dstack" not in str(raised.value)


OTHERS = {
    "Azure ML": """
        $schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json
        command: python train.py --lr ${{inputs.lr}}
        code: src
        environment: azureml:AzureML-pytorch@latest
        compute: azureml:gpu-cluster
        distribution: {type: pytorch, process_count_per_instance: 4}
        resources: {instance_count: 2}
        """,
    "Azure ML without a schema": """
        type: command
        command: python train.py
        environment: azureml://registries/azureml/environments/pytorch/labels/latest
        """,
    "SageMaker": """
        TrainingJobName: train-1
        AlgorithmSpecification: {TrainingImage: "1.dkr.ecr/x", TrainingInputMode: File}
        ResourceConfig: {InstanceCount: 2, InstanceType: ml.p4d.24xlarge, VolumeSizeInGB: 100}
        """,
    "SageMaker's tuning": """
        HyperParameterTuningJobName: tune-1
        HyperParameterTuningJobConfig: {Strategy: Bayesian}
        """,
    "Ray": "entrypoint: python train.py\nruntime_env: {working_dir: ., pip: [torch]}\n",
    "Anyscale": "name: j\nentrypoint: python train.py\ncompute_config: {head_node: {}}\n",
    "Determined": """
        name: mnist
        entrypoint: python3 -m determined.launch.torch_distributed python3 train.py
        resources: {slots_per_trial: 8}
        searcher: {name: single, metric: loss}
        """,
    "Compose": "services:\n  train: {image: demo, command: python train.py}\n",
    "Jupyter": '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}',
    "Cloud Batch": "taskGroups: [{taskCount: 2, taskSpec: {runnables: []}}]\n",
    "Slurm": "#!/bin/bash\n\n#SBATCH --nodes=4\n#SBATCH --gres=gpu:8\nsrun torchrun train.py\n",
    "PBS": "#!/bin/bash\n#PBS -l select=2\nmpiexec python train.py\n",
    "LSF": "#!/bin/sh\r\n#BSUB -n 2\r\npython train.py\r\n",
    "a script": "#!/usr/bin/env python3\nprint('hello')\n",
}


@pytest.mark.parametrize("tool", OTHERS)
def test_file_without_a_conversion_is_named_with_the_page_that_says_what_it_means(
    tool: str,
) -> None:
    with pytest.raises(InvalidJob) as raised:
        read_document(dedent(OTHERS[tool]).encode(), "task.yaml")
    (found,) = raised.value.problems
    title = re.split(r" without|'s ", tool)[0].replace("Anyscale", "Ray")
    assert title in found.problem
    assert found.problem.endswith("and no job file")
    assert "trainmaster submit --folder" in found.example
    assert 'the page "from-torchrun"' in found.example


def test_document_of_another_tool_that_skipped_the_reader_is_named_too() -> None:
    document = parse_document(dedent(OTHERS["Azure ML"]).encode(), "task.yaml")
    with pytest.raises(InvalidJob, match="a job of Azure ML"):
        accept(document, default_job_id="task")


@pytest.mark.parametrize(
    "text",
    [
        "entrypoint: python train.py\n",
        "services: 3\n",
        "services: {}\n",
        "services: [a]\n",
        "$schema: 7\n",
        "$schema: https://json-schema.org/draft/2020-12/schema\n",
        "taskGroups: x\n",
        "searcher: {}\n",
        "# a comment about #SBATCH lines\njobId: a\n",
        "#! vim: set filetype=yaml\njobId: a\n",
    ],
)
def test_file_that_only_resembles_one_of_another_tool_is_read_as_a_job_file(text: str) -> None:
    with pytest.raises(InvalidJob) as raised:
        accept(read_document(text.encode(), "task.yaml"), default_job_id="task")
    assert "no job file" not in str(raised.value)
