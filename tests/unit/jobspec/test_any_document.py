"""Any document leads to a usable plan or to a list of problems, never to another exception."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.jobspec.bodies import MINIMAL
from trainmaster.core.machines.tpus import TPU_VMS
from trainmaster.core.model.task_group import Program
from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster.jobspec.catalog.machine_types import (
    ACCELERATOR_TYPES,
    BUILT_IN_GPUS,
    LEGACY_MACHINES,
    N1_MACHINES,
)
from trainmaster.jobspec.formats.ai_platform import (
    AiPlatformJob,
    ReplicaConfig,
    ScaleTier,
    Scheduling,
    TrainingInput,
)
from trainmaster.jobspec.formats.base_model import nested_models
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.placement import SpotSpec
from trainmaster.jobspec.formats.vertex import (
    ContainerSpec,
    CustomJobSpec,
    EnvVar,
    MachineSpec,
    PythonPackageSpec,
    Strategy,
    VertexCustomJob,
    WorkerPoolSpec,
)
from trainmaster.jobspec.problems import InvalidJob, snake_case
from trainmaster.jobspec.reading.parse_document import parse_document

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(), max_size=20)
    | st.sampled_from(
        (
            "",
            "0",
            "1",
            "-1",
            "3600s",
            "a.b",
            "gs://bkt/a.whl",
            "us-central1",
            "2.11",
            "3.7",
            "cloud_tpu",
        )
    )
    | st.sampled_from(
        (*ScaleTier, *ACCELERATOR_TYPES, *LEGACY_MACHINES, *N1_MACHINES, *BUILT_IN_GPUS)
    )
)
MODELS = (
    AiPlatformJob,
    TrainingInput,
    ReplicaConfig,
    Scheduling,
    Extension,
    SpotSpec,
    VertexCustomJob,
    CustomJobSpec,
    WorkerPoolSpec,
    MachineSpec,
    ContainerSpec,
    PythonPackageSpec,
    EnvVar,
)
NAMES = st.sampled_from([name for model in MODELS for name in nested_models(model)]).flatmap(
    lambda name: st.sampled_from((name, snake_case(name)))
) | st.text(max_size=10)
IMAGE = "us-docker.pkg.dev/my-project/training/trainer:1"
PREBUILT = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=5),
    max_leaves=30,
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "imageUri": st.sampled_from((IMAGE, PREBUILT, "No Image")),
        "containerCommand": st.lists(SCALARS, max_size=2),
        "containerArgs": st.lists(st.sampled_from(("--x", "1")), max_size=2),
        "tpuTfVersion": st.sampled_from(("2.1", "9")),
        "acceleratorConfig": st.fixed_dictionaries(
            {},
            optional={
                "type": st.sampled_from(ACCELERATOR_TYPES),
                "count": st.integers(-1, 9) | st.just(32),
            },
        ),
        "diskConfig": st.fixed_dictionaries(
            {}, optional={"bootDiskSizeGb": st.integers(-1, 70_000)}
        ),
    },
)
MACHINES = st.sampled_from(
    (
        *LEGACY_MACHINES,
        *N1_MACHINES,
        *BUILT_IN_GPUS,
        *TPU_VMS,
        "cloud_tpu",
        "cloud-tpu",
        "e2-standard-4",
        "none-1",
    )
)
EXTENSIONS = st.fixed_dictionaries(
    {},
    optional={
        "region": st.sampled_from(("us-central1", "us-central2", "us-east5", "nowhere")),
        "zones": st.lists(
            st.sampled_from(("us-central1-a", "us-central1-ai1a", "us-east5-b")), max_size=2
        ),
        "spot": SCALARS
        | st.fixed_dictionaries({}, optional={"use": SCALARS, "onDemandAfter": SCALARS}),
        "env": st.dictionaries(st.sampled_from(("A", "B", "TF_CONFIG", "1")), SCALARS, max_size=3),
        "secrets": st.dictionaries(
            st.sampled_from(("A", "C", "AIP_X")), SCALARS | st.just("s/versions/1"), max_size=3
        ),
        "image": st.sampled_from(("projects/p/global/images/family/f", "v2-alpha-tpuv6e", "Image")),
        "stallTimeout": SCALARS | st.just("60s"),
        "checkpointSignal": st.sampled_from(("sigusr1", "SIGTERM", "9")),
        "reservation": SCALARS,
    },
)
TRAINING = st.fixed_dictionaries(
    {},
    optional={
        "scaleTier": st.sampled_from((*ScaleTier, "custom", "SCALE_TIER_UNSPECIFIED")),
        **{
            f"{role}Type": MACHINES for role in ("master", "worker", "parameterServer", "evaluator")
        },
        **{
            f"{role}Count": st.integers(-1, 1200).map(str)
            for role in ("worker", "parameterServer", "evaluator")
        },
        **{
            f"{role}Config": CONFIGS
            for role in ("master", "worker", "parameterServer", "evaluator")
        },
        "runtimeVersion": st.sampled_from(
            ("1.15", "2.1", "2.11", "2.21", "pytorch-2.13", "scikit-learn-1.9", "9")
        ),
        "region": st.sampled_from(("us-central1", "us-central2", "europe-west4", "us-east5")),
        "pythonVersion": st.sampled_from(("2.7", "3.7", "3.12", "3.11")),
        "args": st.lists(SCALARS, max_size=3),
        "scheduling": st.fixed_dictionaries(
            {}, optional={"maxRunningTime": SCALARS, "maxWaitTime": SCALARS}
        ),
    },
)
PLAUSIBLE = st.builds(
    lambda training, minimal, extension: {
        "jobId": "a",
        "trainingInput": {**(MINIMAL if minimal else {"region": "us-central1"}), **training},
        "trainmaster": extension,
    },
    TRAINING,
    st.booleans(),
    EXTENSIONS,
)
ENV = st.lists(
    st.fixed_dictionaries({}, optional={"name": st.sampled_from(("A", "RANK")), "value": SCALARS}),
    max_size=3,
)
PROGRAM = st.fixed_dictionaries(
    {},
    optional={
        "imageUri": st.sampled_from((IMAGE, "No Image")),
        "executorImageUri": st.sampled_from((PREBUILT, PREBUILT.replace("pytorch", "tf"), IMAGE)),
        "packageUris": st.just(MINIMAL["packageUris"]),
        "pythonModule": st.just("trainer.task"),
        "args": st.lists(SCALARS, max_size=2),
        "env": ENV,
    },
)
CONTAINERS = PROGRAM.map(
    lambda program: {
        name: program[name] for name in program if name in nested_models(ContainerSpec)
    }
)
PACKAGES = PROGRAM.map(
    lambda program: {
        name: program[name] for name in program if name in nested_models(PythonPackageSpec)
    }
)
POOLS = st.fixed_dictionaries(
    {},
    optional={
        "machineSpec": st.fixed_dictionaries(
            {"machineType": MACHINES},
            optional={
                "acceleratorType": st.sampled_from(ACCELERATOR_TYPES),
                "acceleratorCount": st.integers(-1, 9),
                "tpuTopology": st.sampled_from(
                    ("1x1", "2x2", "2x4", "4x4", "2x2x1", "4x4x12", "0x0x0", "x")
                ),
            },
        ),
        "replicaCount": st.just(1) | SCALARS,
        "containerSpec": st.just({"imageUri": IMAGE}) | CONTAINERS,
        "pythonPackageSpec": PACKAGES,
    },
)
CUSTOM_JOBS = st.builds(
    lambda pools, scheduling, extension: {
        "displayName": "a",
        "jobSpec": {"workerPoolSpecs": pools, "scheduling": scheduling},
        "trainmaster": extension,
    },
    st.lists(POOLS, max_size=4) | SCALARS,
    st.fixed_dictionaries(
        {},
        optional={
            "strategy": st.sampled_from((*Strategy, "x")),
            "timeout": SCALARS,
            "maxWaitDuration": SCALARS,
        },
    ),
    EXTENSIONS,
)


def plan_or_none(document: Mapping[str, object]) -> AcceptedSpec | None:
    try:
        return accept(document, default_job_id="default_1")
    except InvalidJob as invalid:
        error = invalid
    check_problems(error)
    return None


def check_problems(error: InvalidJob) -> None:
    assert error.problems
    assert len(str(error).splitlines()) == len(error.problems)
    assert len({problem.field for problem in error.problems}) == len(error.problems), (
        "one problem per field"
    )
    for problem in error.problems:
        assert problem.field
        assert problem.problem
        assert problem.example
        json.dumps([problem.field, problem.problem, problem.example], ensure_ascii=False).encode()


def runs_something(program: Program) -> bool:
    """Return True for packages and a module, or a container, but not both."""
    has_packages = bool(program.package_uris and program.python_module)
    return has_packages is not (program.container is not None)


def is_usable(spec: AcceptedSpec) -> bool:
    plan = spec.plan
    return bool(
        plan.groups
        and plan.group(plan.primary.task_type).count == 1
        and plan.where.zones
        and all(runs_something(plan.program_of(group.task_type)) for group in plan.groups)
        and all(group.machine_type or group.tpu for group in plan.groups)
        and 0 < len(plan.replica_ids) <= 1000
        and spec.job_id
        and isinstance(json.loads(spec.spec_json.encode()), dict)
    )


@given(st.dictionaries(NAMES, ANYTHING, max_size=6))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_document_has_plan_or_problems(document: dict[str, object]) -> None:
    spec = plan_or_none(document)
    assert spec is None or is_usable(spec)


@given(st.dictionaries(NAMES, ANYTHING, max_size=4))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_training_input_has_plan_or_problems(training: dict[str, object]) -> None:
    spec = plan_or_none({"trainingInput": {**MINIMAL, **training}})
    assert spec is None or is_usable(spec)


@given(PLAUSIBLE)
def test_any_plausible_job_has_plan_or_problems(document: dict[str, object]) -> None:
    spec = plan_or_none(document)
    assert spec is None or is_usable(spec)
    if spec is not None:
        assert json.loads(spec.spec_json) == document


@given(CUSTOM_JOBS)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_plausible_custom_job_has_plan_or_problems(document: dict[str, object]) -> None:
    spec = plan_or_none(document)
    assert spec is None or is_usable(spec)
    if spec is not None:
        assert json.loads(spec.spec_json) == document


@given(st.dictionaries(NAMES, ANYTHING, max_size=4))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_any_worker_pool_has_plan_or_problems(pool: dict[str, object]) -> None:
    valid = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": IMAGE},
    }
    spec = plan_or_none(
        {"workerPoolSpecs": [{**valid, **pool}], "trainmaster": {"region": "us-central1"}}
    )
    assert spec is None or is_usable(spec)


@given(
    st.binary(max_size=200)
    | st.text(alphabet="{}[]:,-&*!?|>'\"%@`#\n\t ab01.~", max_size=80).map(str.encode)
)
def test_any_bytes_are_parsed_or_refused(data: bytes) -> None:
    for name in ("job.yaml", "job.json"):
        try:
            document = parse_document(data, name)
        except InvalidJob as invalid:
            error = invalid
        else:
            json.dumps(document, allow_nan=False).encode()
            plan_or_none(document)
            continue
        check_problems(error)
