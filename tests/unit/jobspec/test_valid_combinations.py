"""Valid parts in any combination that is allowed make a valid job."""

from __future__ import annotations

from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.jobspec.bodies import MINIMAL
from tests.unit.jobspec.machine_requests import IMAGE
from trainmaster.core.model.origin import Dialect
from trainmaster.jobspec.accept import accept

PACKAGES: Final = {"packageUris": MINIMAL["packageUris"], "pythonModule": "trainer.task"}
COMPUTE: Final = st.sampled_from(
    ("n1-standard-4", "n2-standard-8", "g2-standard-12", "c4-standard-8")
)
EXTENSION: Final = st.fixed_dictionaries(
    {},
    optional={
        "zones": st.just(["us-central1-f", "us-central1-ai1a"]),
        "spot": st.sampled_from(
            ("none", "ALL", "workers", {"use": "workers", "onDemandAfter": "2"})
        ),
        "env": st.just({"LEVEL": "debug", "EMPTY": ""}),
        "secrets": st.sampled_from(
            ({"KEY": "s"}, {"KEY": "s/versions/7"}, {"KEY": "projects/p/secrets/s/versions/1"})
        ),
        "image": st.sampled_from(
            ("projects/p/global/images/i", "projects/p-1/global/images/family/f")
        ),
        "reservation": st.sampled_from(("r", "projects/p/reservations/r")),
        "checkpointSignal": st.sampled_from(("SIGUSR1", "sigint")),
        "stallTimeout": st.sampled_from(("60s", "86400.5s")),
        "disableRetries": st.booleans(),
        "independentReplicas": st.booleans(),
        "restartJobOnWorkerRestart": st.sampled_from((True, "true", "False")),
        "exitPolicy": st.just({"preset": "service", "restart": ["ps:2"]}),
    },
)
COMMON: Final = {
    "serviceAccount": st.just("a@b.iam.gserviceaccount.com"),
    "network": st.sampled_from(
        ("projects/1/global/networks/default", "projects/my-project/global/networks/n")
    ),
    "enableWebAccess": st.just(False),
}
PROGRAM: Final[st.SearchStrategy[dict[str, object]]] = st.sampled_from(
    (
        PACKAGES,
        {**PACKAGES, "args": ["--x", ""], "runtimeVersion": "2.11", "pythonVersion": "3.7"},
        {**PACKAGES, "runtimeVersion": "xgboost-3.2"},
        {
            **PACKAGES,
            "masterConfig": {"imageUri": "gcr.io/cloud-ml-public/training/pytorch-gpu.1-10"},
        },
        {"masterConfig": {"imageUri": IMAGE}, "args": ["--x"], "useChiefInTfConfig": "True"},
        {"masterConfig": {"imageUri": IMAGE, "containerCommand": ["a"], "containerArgs": ["b"]}},
    )
)


@st.composite
def trainings(draw: st.DrawFn) -> dict[str, object]:
    body: dict[str, object] = {"region": "us-central1", **draw(PROGRAM)}
    if draw(st.booleans()):
        body |= {"scaleTier": "custom", "masterType": draw(COMPUTE)}
        for role in draw(st.sets(st.sampled_from(("worker", "parameterServer", "evaluator")))):
            body |= {
                f"{role}Type": draw(COMPUTE),
                f"{role}Count": draw(st.sampled_from((1, "2", 3))),
            }
    else:
        body["scaleTier"] = draw(
            st.sampled_from(("BASIC", "STANDARD_1", "premium-1", "BASIC_GPU", None))
        )
    body |= draw(
        st.fixed_dictionaries(
            {},
            optional={
                **COMMON,
                "jobDir": st.sampled_from(("gs://bkt", "gs://bkt/", "gs://bkt/a/b")),
                "scheduling": st.just(
                    {"maxRunningTime": "60s", "maxWaitTime": "1800s", "priority": "1000"}
                ),
                "encryptionConfig": st.just(
                    {"kmsKeyName": "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"}
                ),
            },
        )
    )
    return body


@st.composite
def custom_jobs(draw: st.DrawFn) -> dict[str, object]:
    env = {"env": [{"name": "A", "value": "1"}, {"name": "B"}]}
    executor = "asia-docker.pkg.dev/vertex-ai/training/xgboost-cpu.2-1:latest"
    run: dict[str, object] = draw(
        st.sampled_from(
            (
                {"containerSpec": {"imageUri": IMAGE, **env}},
                {
                    "containerSpec": {"imageUri": IMAGE, "command": ["a"], "args": ["b"]},
                    "pythonPackageSpec": None,
                },
                {"pythonPackageSpec": {"executorImageUri": executor, **PACKAGES, **env}},
            )
        )
    )
    pools: list[dict[str, object]] = []
    for index in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 3)) if index else 1
        pool = {"machineSpec": {"machineType": draw(COMPUTE)}, "replicaCount": str(count), **run}
        pools.append({} if index and draw(st.booleans()) else pool)
    spec: dict[str, object] = draw(
        st.fixed_dictionaries(
            {"workerPoolSpecs": st.just(pools)},
            optional={
                **COMMON,
                "baseOutputDirectory": st.just({"outputUriPrefix": "gs://bkt/out/"}),
                "scheduling": st.fixed_dictionaries(
                    {},
                    optional={
                        "strategy": st.sampled_from(
                            ("SPOT", "standard", "ON_DEMAND", "STRATEGY_UNSPECIFIED")
                        ),
                        "timeout": st.just("3600s"),
                        "maxWaitDuration": st.sampled_from(("0s", "600s")),
                        "disableRetries": st.booleans(),
                    },
                ),
            },
        )
    )
    return spec if draw(st.booleans()) else {"displayName": "Ein Name", "jobSpec": spec}


@given(trainings(), EXTENSION)
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_valid_parts_of_training_input_are_accepted_together(
    body: dict[str, object], extension: dict[str, object]
) -> None:
    document = {"jobId": "a", "trainingInput": body, "trainmaster": extension}

    plan = accept(document, default_job_id=None).plan

    assert plan.origin.dialect is Dialect.AI_PLATFORM
    assert (plan.program.container is None) is ("packageUris" in body)
    assert plan.access.network == body.get("network")


@given(custom_jobs(), EXTENSION)
@settings(max_examples=2 * settings().max_examples, deadline=None)
def test_valid_parts_of_custom_job_are_accepted_together(
    document: dict[str, object], extension: dict[str, object]
) -> None:
    whole = {**document, "trainmaster": {**extension, "region": "us-central1"}}

    spec = accept(whole, default_job_id=None if "displayName" in document else "from_the_file")

    assert spec.job_id == ("Ein_Name" if "displayName" in document else "from_the_file")
    assert spec.plan.origin.dialect is Dialect.VERTEX
    assert spec.plan.primary.index == 0
