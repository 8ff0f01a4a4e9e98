"""gcloud's options: how a command line is read, and which field of which format each
option sets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.testing import CliRunner

from tests.unit.jobspec.bodies import MINIMAL
from tests.unit.jobspec.golden_text import GOLDEN
from trainmaster.cli.gcloud_command import GcloudCommand, with_flags
from trainmaster.cli.gcloud_flags import FLAGS, apply_flags
from trainmaster.cli.job_files import read_job
from trainmaster.errors import PermanentError
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import job_file_of

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
POOL = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": 1,
    "containerSpec": {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"},
}


def command_line(*words: str) -> tuple[int, str, dict[str, Any]]:
    """Return exit status, output, and what the command got."""
    got: dict[str, Any] = {}
    app = typer.Typer()

    @app.command(cls=GcloudCommand, context_settings={"allow_extra_args": True})
    @with_flags
    def submit(context: typer.Context, job: str, **flags: Any) -> None:
        given = {name: value for name, value in flags.items() if value is not None}
        got.update(given, job=job, program=context.args)

    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output, got


@pytest.mark.parametrize("flag", [name for name, row in FLAGS.items() if row.type is bool])
@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("--{}",), True),
        (("--no-{}",), False),
        (("--{}=true",), True),
        (("--{}=Yes",), True),
        (("--{}=false",), False),
        (("--{}", "true"), True),
        (("--{}", "NO"), False),
    ],
)
def test_boolean_flag_is_read_with_and_without_its_value(
    flag: str, words: tuple[str, ...], value: bool
) -> None:
    status, output, got = command_line(
        "digits_1", *(word.format(flag.replace("_", "-")) for word in words), "--", "true"
    )
    assert status == 0, output
    assert got == {"job": "digits_1", flag: value, "program": ["true"]}


def test_value_of_a_boolean_flag_that_is_no_truth_value_is_named() -> None:
    status, output, _ = command_line("digits_1", "--use-chief-in-tf-config=maybe")
    assert status == 2
    assert "'maybe' is not one of true, yes, false, no" in " ".join(output.replace("│", "").split())


@pytest.mark.parametrize(
    "words", [("digits_1", "stray"), ("digits_1", "--region=r", "stray", "--", "--epochs")]
)
def test_word_before_the_double_dash_is_no_argument_of_the_program(words: tuple[str, ...]) -> None:
    status, output, got = command_line(*words)
    assert (status, got) == (2, {})
    assert "unrecognized arguments: stray" in output


def test_words_after_the_double_dash_are_arguments_of_the_program_unchanged() -> None:
    program = ["--epochs", "5", "--quiet", "--use-chief-in-tf-config=true", "--", "a b"]
    status, output, got = command_line(
        "digits_1", "--region", "us-central1", "-q", "--verbosity=debug", "--", *program
    )
    assert status == 0, output
    assert got == {
        "job": "digits_1",
        "region": "us-central1",
        "quiet": True,
        "verbosity": "debug",
        "program": program,
    }


OPTIONS: dict[str, Any] = {
    "region": "us-east1",
    "labels": "team=vision,run=first",
    "service_account": "me@p.iam.gserviceaccount.com",
    "network": "projects/1/global/networks/n",
    "max_running_time": "1m",
    "kms_key": KEY.replace("us-central1", "us-east1"),
}


@pytest.mark.parametrize(
    "document",
    [
        {"trainingInput": MINIMAL},
        {
            "training_input": {
                "package_uris": MINIMAL["packageUris"],
                "python_module": "t",
                "network": "old",
            }
        },
        {"workerPoolSpecs": POOL, "displayName": "d"},  # a pool in place of a list with one pool
        {"job_spec": {"worker_pool_specs": [POOL], "scheduling": {"disable_retries": True}}},
        {
            "jobSpec": {"workerPoolSpecs": [POOL]},
            "trainmaster": {"region": "us-west1", "env": {"A": "b"}},
        },
        {
            "studySpec": yaml.safe_load((GOLDEN / "vertex-tuning-containers.yaml").read_text())[
                "studySpec"
            ],
            "trial_job_spec": {"worker_pool_specs": [POOL]},
        },
        {"trainingTaskInputs": {"workerPoolSpecs": [POOL]}},
    ],
)
def test_options_that_both_services_have_set_their_fields_in_every_form(
    document: dict[str, Any],
) -> None:
    spec = accept(
        apply_flags(job_file_of(document), OPTIONS, ["--epochs", "5"]), default_job_id="digits_1"
    )
    plan = spec.plan
    program = plan.program_of(plan.primary.task_type)
    assert (plan.where.region, plan.access.service_account, plan.access.network) == (
        "us-east1",
        OPTIONS["service_account"],
        OPTIONS["network"],
    )
    assert (plan.limits.max_running_s, plan.access.kms_key, program.args) == (
        60,
        OPTIONS["kms_key"],
        ("--epochs", "5"),
    )
    assert spec.labels == {"team": "vision", "run": "first"}


def test_options_of_tuning_override_the_file_and_reach_the_study() -> None:
    _, document = read_job(str(GOLDEN / "vertex-tuning-containers.yaml"), None)
    flags = {
        "max_trial_count": 7,
        "parallel_trial_count": 2,
        "algorithm": "random-search",
        "display_name": "mine",
    }
    spec = accept(apply_flags(document, flags, ()), default_job_id=None)
    assert spec.tuning is not None
    assert (spec.job_id, spec.tuning.max_trials, spec.tuning.max_parallel) == ("mine", 7, 2)
    assert spec.tuning.algorithm == "RANDOM_SEARCH"


def test_command_and_arguments_replace_those_of_each_container() -> None:
    # gcloud's syntax: ^:^ makes the colon the delimiter of this list in place of the comma.
    flags = {"command": "python,-m,t", "args": "^:^--list=1,2:--x"}
    document = apply_flags({"workerPoolSpecs": [POOL, {}, POOL]}, flags, ())
    pools = document["jobSpec"]["workerPoolSpecs"]
    assert [pool.get("containerSpec", {}).get("args") for pool in pools] == [
        ["--list=1,2", "--x"],
        None,
        ["--list=1,2", "--x"],
    ]
    assert pools[0]["containerSpec"]["command"] == ["python", "-m", "t"]


@pytest.mark.parametrize(
    ("document", "flags", "message"),
    [
        (
            {"jobSpec": {}},
            {"scale_tier": "basic", "module_name": "m"},
            "--scale-tier, --module-name: a custom job",
        ),
        (
            {"trainingInput": {}},
            {"max_trial_count": 3},
            "--max-trial-count: a job of AI Platform has no field for it",
        ),
        ({}, {"kms_key": "k", "kms_keyring": "r"}, "Give --kms-project, --kms-location as well"),
    ],
)
def test_option_without_a_field_is_named_with_the_kind_of_the_job(
    document: dict[str, Any], flags: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRAINMASTER_PROJECT", raising=False)
    with pytest.raises(PermanentError, match=message):
        apply_flags(document, flags, ())


def test_parts_of_a_kms_key_make_its_full_name() -> None:
    parts = {"kms_key": "k", "kms_keyring": "r", "kms_location": "us-central1", "kms_project": "p"}
    assert apply_flags({}, parts, ())["trainingInput"]["encryptionConfig"] == {"kmsKeyName": KEY}


def test_option_keeps_the_other_fields_around_its_own(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(
        "trainingInput: {scheduling: {priority: 5}, workerConfig: {imageUri: i}}"
    )
    _, document = read_job(str(tmp_path / "job.yaml"), None)
    changed = apply_flags(
        document, {"max_running_time": "60s", "worker_accelerator": "type=nvidia-tesla-t4"}, ()
    )
    training = changed["trainingInput"]
    assert training["scheduling"] == {"priority": 5, "maxRunningTime": "60s"}
    assert training["workerConfig"] == {
        "imageUri": "i",
        "acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": "1"},
    }
