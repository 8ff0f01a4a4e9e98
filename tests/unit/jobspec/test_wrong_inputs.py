"""Inputs that led newcomers astray: the answer names what is meant, and its example is accepted."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

import pytest
import yaml

from tests.unit.jobspec.bodies import CUSTOM, MINIMAL, custom, job
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.jobspec.reading.document_kinds import KINDS, DocumentKind
from trainmaster.jobspec.reading.parse_document import parse_document

POOL = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": 1,
    "containerSpec": {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"},
}


def problem_of(document: Mapping[str, object]) -> Problem:
    with pytest.raises(InvalidJob) as caught:
        accept(document, default_job_id=None)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.collection)
def test_any_field_of_a_wrong_type_is_a_problem_with_an_example(kind: DocumentKind) -> None:
    for field in kind.model.model_fields.values():
        name = str(field.alias)
        no_field_has_this_type = [{"a": 1.5}]
        document = {kind.identified_by[0]: "x", "trainmaster": {"region": "us-central1"}}
        with pytest.raises(InvalidJob) as caught:
            accept({**document, name: no_field_has_this_type}, default_job_id="x_1")
        assert caught.value.problems, name


def with_extension(**fields: object) -> dict[str, Any]:
    return {**job(), "trainmaster": fields}


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        (25, "25 USD"),
        (2.5, "2.5 USD"),
        ("25", "25 USD"),
        ("$25", "25 USD"),
        ("25$", "25 USD"),
        ("25 eur", "25 EUR"),
        ("25 dollars", "25 USD"),
        ("0", "25 USD"),
    ],
)
def test_cap_of_wrong_form_gets_an_example_with_its_amount_that_is_accepted(
    written: object, amount: str
) -> None:
    problem = problem_of(with_extension(maxCost=written))

    assert problem.example == f'maxCost: "{amount}"'
    cap = accept(with_extension(maxCost=amount), default_job_id=None).plan.limits.cap
    assert cap is not None


@pytest.mark.parametrize("suffix", ["yaml", "json"])
@pytest.mark.parametrize("version", ["2.10", "2.1", "1.50"])
def test_version_without_quotes_keeps_its_zeros_in_the_example(version: str, suffix: str) -> None:
    document = json.dumps(job(runtimeVersion="VERSION")).replace('"VERSION"', version)

    problem = problem_of(parse_document(document.encode(), f"job.{suffix}"))

    assert f"{version} without quotes is a number" in problem.problem
    assert problem.example == f'runtimeVersion: "{version}"'


def test_zone_as_region_of_a_job_names_region_and_zones() -> None:
    problem = problem_of(job(region="us-central1-f"))

    assert "is a zone of us-central1" in problem.problem
    example = yaml.safe_load(f"{{{problem.example}}}")
    assert example == {"region": "us-central1", "trainmaster": {"zones": ["us-central1-f"]}}
    accepted = {**job(region=example["region"]), "trainmaster": example["trainmaster"]}
    plan = accept(accepted, default_job_id=None).plan
    assert plan.where.zones == ("us-central1-f",)


def test_zone_as_region_of_a_custom_job_names_both_in_one_object() -> None:
    document = {"displayName": "d", "workerPoolSpecs": [POOL]}

    problem = problem_of({**document, "trainmaster": {"region": "us-central1-f"}})

    extension = yaml.safe_load(f"{{{problem.example}}}")
    plan = accept({**document, "trainmaster": extension}, default_job_id=None).plan
    assert plan.where.zones == ("us-central1-f",)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpus", 'masterType: "a2-highgpu-1g"'),
        ("num_gpus", 'masterType: "a2-highgpu-1g"'),
        ("accelerators", 'masterType: "a2-highgpu-1g"'),
        ("instanceType", 'masterType: "a2-highgpu-1g"'),
        ("num_nodes", "workerCount: 1"),
        ("workdir", "--folder"),
        ("timeout", '{"maxRunningTime": "7200s"}'),
        ("diskSize", '{"diskConfig": {"bootDiskSizeGb": 200}}'),
        ("envs", "trainmaster: {env:"),
        ("use_spot", "trainmaster: {spot: all}"),
        ("setup", "requirements.txt"),
    ],
)
def test_field_of_another_tool_is_answered_with_what_says_the_same(name: str, words: str) -> None:
    problem = problem_of(custom(**{name: 4}))

    assert problem.problem == "is not a known name"
    assert words in problem.example


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpus", "machineSpec"),
        ("numNodes", "replicaCount: 2"),
        ("maxRunDuration", '{"timeout": "7200s"}'),
    ],
)
def test_field_of_another_tool_in_a_custom_job_is_answered_in_its_format(
    name: str, words: str
) -> None:
    document = {"displayName": "d", "jobSpec": {"workerPoolSpecs": [POOL], name: 4}}

    problem = problem_of({**document, "trainmaster": {"region": "us-central1"}})

    assert words in problem.example


class Meant(NamedTuple):
    """A part of the example that says what a name means, in each of the two formats."""

    in_job: str
    in_custom_job: str


IMAGE = Meant('masterConfig: {"imageUri": "us-docker', 'containerSpec: {"imageUri": "us-docker')
MACHINE = Meant("masterType", "machineSpec")
ENVIRONMENT = Meant("trainmaster: {env:", "trainmaster: {env:")
COMMAND = Meant("--folder", 'containerSpec: {"command":')
MEANT: dict[str, Meant] = {
    "image": IMAGE,
    "imageUri": IMAGE,
    "container": IMAGE,
    "docker": IMAGE,
    "containerSpec": Meant(IMAGE.in_job, "of a worker pool"),
    "gpu": MACHINE,
    "gpus": MACHINE,
    "machine": MACHINE,
    "instance_type": MACHINE,
    "workers": Meant("workerCount: 1", "replicaCount: 2"),
    "env": ENVIRONMENT,
    "envs": ENVIRONMENT,
    "command": COMMAND,
    "script": COMMAND,
    "requirements": Meant("requirements.txt", "setup.py"),
    "spot": Meant("trainmaster: {spot:", "trainmaster: {spot:"),
    "max_run_time": Meant('{"maxRunningTime":', '{"timeout":'),
}
"""Name that a user writes → what it means."""


def at_each_level(name: str) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield each level, a document with the name there, and whether it is a custom job's."""
    value = {"command": ["x"]} if name == "containerSpec" else "4"
    tm = {"region": "us-central1"}
    yield "job", {**job(), name: value}, False
    yield "trainingInput", custom(**{name: value}), False
    yield "masterConfig", custom(masterConfig={name: value}), False
    yield "scheduling", custom(scheduling={name: value}), False
    yield "trainmaster", with_extension(**{name: value}), False
    spec = {"workerPoolSpecs": [POOL]}
    top = {"displayName": "d", "trainmaster": tm}
    yield "customJob", {**top, "jobSpec": spec, name: value}, True
    yield "jobSpec", {**top, "jobSpec": {**spec, name: value}}, True
    yield "pool", {**top, "jobSpec": {"workerPoolSpecs": [{**POOL, name: value}]}}, True
    for level in ("machineSpec", "containerSpec"):
        pool = {**POOL, level: {**cast(dict[str, Any], POOL[level]), name: value}}
        yield level, {**top, "jobSpec": {"workerPoolSpecs": [pool]}}, True
    extension = {**tm, name: value}
    yield "trainmaster of a custom job", {**top, "jobSpec": spec, "trainmaster": extension}, True


HAVE_THE_FIELD = {
    ("imageUri", "masterConfig"),
    ("imageUri", "containerSpec"),
    ("containerSpec", "pool"),
    ("command", "containerSpec"),
    ("env", "containerSpec"),
    *itertools.product(("env", "spot", "image"), ("trainmaster", "trainmaster of a custom job")),
}
"""Names and the levels that have a field of that name."""


@pytest.mark.parametrize("name", MEANT)
def test_word_that_users_write_is_answered_at_each_level_with_the_field_that_they_mean(
    name: str,
) -> None:
    for level, document, is_custom in at_each_level(name):
        if (name, level) in HAVE_THE_FIELD:
            continue
        with pytest.raises(InvalidJob) as caught:
            accept(document, default_job_id=None)
        problems = caught.value.problems
        (answer,) = (problem for problem in problems if problem.field.endswith(name))
        meant = MEANT[name].in_custom_job if is_custom else MEANT[name].in_job
        assert meant in answer.example, (level, problems)


def test_image_may_also_be_the_boot_image() -> None:
    problem = problem_of(custom(image="projects/my-project/global/images/family/trainer"))

    assert problem.example.endswith("; trainmaster.image is the boot image of the VMs")


def test_local_package_names_the_option_that_uploads_it() -> None:
    problem = problem_of(job(packageUris=["dist/trainer-0.1.tar.gz"]))

    assert "`trainmaster submit --packages dist/trainer-0.1.tar.gz`" in problem.problem


def test_bucket_of_too_short_a_name_is_named() -> None:
    problem = problem_of(job(packageUris=["gs://b/trainer-0.1.tar.gz"]))

    assert '"b" is no name of a bucket' in problem.problem


@pytest.mark.parametrize("module", [{}, {"pythonModule": "trainer.task"}])
def test_job_without_a_program_names_the_folder(module: dict[str, str]) -> None:
    training = {"region": MINIMAL["region"], "scaleTier": "CUSTOM"} | module
    training["masterType"] = str(CUSTOM["masterType"])

    with pytest.raises(InvalidJob) as caught:
        accept({"jobId": "a", "trainingInput": training}, default_job_id=None)

    problem = next(problem for problem in caught.value.problems if "packageUris" in problem.field)
    assert "`trainmaster submit FILE --folder . -- COMMAND`" in problem.example


SECRET = "abcd1234secretvalue"


@pytest.mark.parametrize(
    "extension",
    [
        {"secrets": {"WANDB_API_KEY": f"{SECRET}="}},
        {"secrets": {"WANDB_API_KEY": f"sk-{SECRET}/x"}},
        {"secrets": {f"WANDB_API_KEY={SECRET}": "wandb"}},
        {"secrets": f"WANDB_API_KEY={SECRET}"},
        {"secrets": [f"WANDB_API_KEY={SECRET}"]},
        {"secrets": {"WANDB_API_KEY": [SECRET]}},
        {"env": {"WANDB_API_KEY": [SECRET]}},
        {"env": [f"WANDB_API_KEY={SECRET}"]},
        {"env": f"WANDB_API_KEY={SECRET}"},
        {"envs": {"WANDB_API_KEY": SECRET}},
        {"secret": {"WANDB_API_KEY": SECRET}},
        {"placement": {"anyOf": [{"env": {"A": [SECRET]}}]}},
    ],
)
def test_value_that_may_be_a_secret_is_not_printed_back(extension: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob) as caught:
        accept(with_extension(**extension), default_job_id=None)

    for problem in caught.value.problems:
        assert SECRET not in f"{problem.field} {problem.problem} {problem.example}"
