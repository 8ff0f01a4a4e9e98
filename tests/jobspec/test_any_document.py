"""Whatever is submitted: a plan or a list of problems, never another exception, and a plan that can be used."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.jobspec import AcceptedSpec, InvalidJob, accept, parse_document
from shared.jobspec.machines import ACCELERATOR_TYPES, BUILT_IN_GPUS, LEGACY_MACHINES, N1_MACHINES
from shared.jobspec.model import SCALE_TIERS, Extension, Job, ReplicaConfig, Scheduling, TrainingInput, fields_of
from shared.jobspec.problems import snake_case
from tests.jobspec.bodies import MINIMAL

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(("", "0", "1", "-1", "3600s", "a.b", "gs://bkt/a.whl", "us-central1", "2.11", "3.7", "cloud_tpu"))
    | st.sampled_from((*SCALE_TIERS, *ACCELERATOR_TYPES, *LEGACY_MACHINES, *N1_MACHINES, *BUILT_IN_GPUS))
)
MODELS = (Job, TrainingInput, ReplicaConfig, Scheduling, Extension)
NAMES = st.sampled_from([name for model in MODELS for name in fields_of(model)]).flatmap(
    lambda name: st.sampled_from((name, snake_case(name)))
) | st.text(max_size=10)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=30,
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "acceleratorConfig": st.fixed_dictionaries(
            {}, optional={"type": st.sampled_from(ACCELERATOR_TYPES), "count": st.integers(-1, 9)}
        ),
        "diskConfig": st.fixed_dictionaries({}, optional={"bootDiskSizeGb": st.integers(-1, 70_000)}),
    },
)
MACHINES = st.sampled_from((*LEGACY_MACHINES, *N1_MACHINES, *BUILT_IN_GPUS, "cloud_tpu", "e2-standard-4", "none-1"))
PLAUSIBLE = st.fixed_dictionaries(
    {},
    optional={
        "scaleTier": st.sampled_from((*SCALE_TIERS, "custom", "SCALE_TIER_UNSPECIFIED")),
        **{f"{role}Type": MACHINES for role in ("master", "worker", "parameterServer", "evaluator")},
        **{f"{role}Count": st.integers(-1, 1200).map(str) for role in ("worker", "parameterServer", "evaluator")},
        **{f"{role}Config": CONFIGS for role in ("master", "worker", "parameterServer", "evaluator")},
        "runtimeVersion": st.sampled_from(("1.15", "2.1", "2.11", "2.21", "pytorch-2.13", "9")),
        "pythonVersion": st.sampled_from(("2.7", "3.7", "3.12", "3.11")),
        "args": st.lists(SCALARS, max_size=3),
        "scheduling": st.fixed_dictionaries({}, optional={"maxRunningTime": SCALARS, "maxWaitTime": SCALARS}),
    },
).map(lambda training: {"jobId": "a", "trainingInput": {**MINIMAL, **training}})


def outcome(document: Mapping[str, object]) -> AcceptedSpec | None:
    try:
        return accept(document, default_job_id="default_1")
    except InvalidJob as invalid:
        refusal = invalid
    check(refusal)
    return None


def check(refusal: InvalidJob) -> None:
    assert refusal.problems
    assert len(str(refusal).splitlines()) == len(refusal.problems)
    assert len({problem.field for problem in refusal.problems}) == len(refusal.problems), "one problem per field"
    for problem in refusal.problems:
        assert problem.field
        assert problem.problem
        assert problem.example
        json.dumps([problem.field, problem.problem, problem.example], ensure_ascii=False).encode()


def usable(spec: AcceptedSpec) -> bool:
    plan = spec.plan
    return bool(
        plan.groups
        and plan.group(plan.primary.task_type).count == 1
        and plan.zones
        and plan.program.package_uris
        and 0 < len(plan.seats) <= 1000
        and spec.job_id
        and isinstance(json.loads(spec.spec_json.encode()), dict)
    )


@given(st.dictionaries(NAMES, ANYTHING, max_size=6))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_document_is_a_plan_or_problems(document: dict[str, object]) -> None:
    spec = outcome(document)
    assert spec is None or usable(spec)


@given(st.dictionaries(NAMES, ANYTHING, max_size=4))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_training_input_is_a_plan_or_problems(training: dict[str, object]) -> None:
    spec = outcome({"trainingInput": {**MINIMAL, **training}})
    assert spec is None or usable(spec)


@given(PLAUSIBLE)
@settings(max_examples=600, deadline=None)
def test_any_plausible_job_is_a_plan_or_problems(document: dict[str, object]) -> None:
    spec = outcome(document)
    assert spec is None or usable(spec)
    if spec is not None:
        assert json.loads(spec.spec_json) == document


@given(st.binary(max_size=200) | st.text(alphabet="{}[]:,-&*!?|>'\"%@`#\n\t ab01.~", max_size=80).map(str.encode))
@settings(max_examples=600, deadline=None)
def test_any_bytes_are_a_document_or_problems(data: bytes) -> None:
    for name in ("job.yaml", "job.json"):
        try:
            document = parse_document(data, name)
        except InvalidJob as invalid:
            refusal = invalid
        else:
            json.dumps(document, allow_nan=False).encode()
            outcome(document)
            continue
        check(refusal)
