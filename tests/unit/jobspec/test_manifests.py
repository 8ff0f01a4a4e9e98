"""Manifests of Kubeflow and JobSet: the exact job file of each, or its exact problems.

The manifests are written after public examples, whose paths are in their first lines. Python's
`write_golden.py` beside them writes the golden files.
"""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.core.model.exit_policy import Preset
from trainmaster.core.model.plan import Elastic
from trainmaster.core.model.replica_id import TaskType
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import read_document
from trainmaster.jobspec.manifests.convert import convert
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

FOLDER: Final = Path(__file__).parent / "manifests"
MANIFESTS: Final = sorted(path.stem for path in FOLDER.glob("*.yaml"))
REFUSED: Final = sorted(path.stem for path in (FOLDER / "refused").glob("*.yaml"))
WITH_REGION: Final = ("trainjob-with-runtime", "jobset-v6e-multislice")
IMAGE: Final = "us-docker.pkg.dev/my-project/training/trainer:1"


def convert_file(path: Path) -> dict[str, Any]:
    region = None if path.stem in WITH_REGION else "us-central1"
    return dict(read_document(path.read_bytes(), path.name, region))


def job_file_text(name: str) -> str:
    document = json.loads(json.dumps(convert_file(FOLDER / f"{name}.yaml")))
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def problems_text(name: str) -> str:
    with pytest.raises(InvalidJob) as raised:
        convert_file(FOLDER / "refused" / f"{name}.yaml")
    return "".join(
        f"{item.field}: {item.problem}\n    {item.example}\n" for item in raised.value.problems
    )


def a_pytorch_job(**fields: object) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "pytorch", "image": IMAGE}]}}
    specs = {
        "Master": {"template": template},
        "Worker": {"replicas": 2, "template": copy.deepcopy(template)},
    }
    spec = {"pytorchReplicaSpecs": specs, **fields}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "digits"},
        "spec": spec,
    }


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_has_golden_job_file(name: str) -> None:
    assert job_file_text(name) == (FOLDER / f"{name}.job").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_manifest_has_golden_problems(name: str) -> None:
    assert problems_text(name) == (FOLDER / "refused" / f"{name}.problems").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", MANIFESTS)
def test_printed_job_file_is_accepted_and_lists_the_substitutions_on_the_job(name: str) -> None:
    printed = parse_document((FOLDER / f"{name}.job").read_bytes(), "job.yaml")
    spec = accept({**printed, "jobId": "j"}, default_job_id=None)
    listed = printed["trainmaster"]["convertedFrom"]["substitutions"]  # type: ignore[index]
    shown = [
        {
            "field": item.field,
            "requested": item.requested,
            "replacement": item.replacement,
            "reason": item.reason,
        }
        for item in spec.plan.origin.substitutions
    ]
    assert shown[: len(listed)] == listed
    assert listed


def test_slices_of_jobset_become_replicas_with_hosts_of_the_topology() -> None:
    plan = accept(
        convert_file(FOLDER / "jobset-v6e-multislice.yaml") | {"jobId": "j"}, default_job_id=None
    ).plan
    assert [(group.task_type, group.count, group.hosts) for group in plan.groups] == [
        (TaskType.CHIEF, 1, 4),
        (TaskType.WORKER, 1, 4),
    ]
    assert (plan.where.zones, plan.restarts.restart_job_on_worker_restart) == (
        ("us-east5-b",),
        True,
    )


@pytest.mark.parametrize(
    ("policies", "backoff_limit", "disables", "rules"),
    [
        (("Never", "Never"), None, True, []),
        (("OnFailure", "OnFailure"), 0, True, []),
        (("OnFailure", "OnFailure"), 3, False, []),
        (("ExitCode", "ExitCode"), None, False, [(1, 127, "fail", ()), (128, 255, "restart", ())]),
        (("OnFailure", "Never"), None, False, [(1, 255, "fail", ("worker",))]),
    ],
)
def test_restart_policies_lead_to_exit_policy(
    policies: tuple[str, str],
    backoff_limit: int | None,
    disables: bool,
    rules: list[tuple[object, ...]],
) -> None:
    manifest = a_pytorch_job(runPolicy={"backoffLimit": backoff_limit})
    for role, policy in zip(("Master", "Worker"), policies, strict=True):
        manifest["spec"]["pytorchReplicaSpecs"][role]["restartPolicy"] = policy
    plan = accept(convert(manifest, "us-central1"), default_job_id=None).plan
    assert plan.restarts.disable_retries is disables
    if not disables:
        exits = plan.restarts.exit_policy
        found = [
            (rule.first, rule.last, rule.action.value, rule.task_types) for rule in exits.rules
        ]
        assert (exits.preset, found) == (Preset.RESTART, rules)


def test_elastic_job_of_fixed_size_gets_rendezvous_variables() -> None:
    manifest = a_pytorch_job(
        elasticPolicy={
            "minReplicas": 2,
            "maxReplicas": 2,
            "rdzvConf": [{"key": "last_call_timeout", "value": "30"}],
        }
    )
    del manifest["spec"]["pytorchReplicaSpecs"]["Master"]
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    variables = {item["name"]: item["value"] for item in pools[1]["containerSpec"]["env"]}
    assert [pool["replicaCount"] for pool in pools] == [1, 1]
    assert variables["PET_RDZV_ENDPOINT"] == "$(MASTER_ADDR):$(MASTER_PORT)"
    assert variables["PET_NNODES"] == "$(WORLD_SIZE):$(WORLD_SIZE)"
    assert variables["PET_RDZV_CONF"] == "last_call_timeout=30"


@pytest.mark.parametrize("kind", ["PyTorchJob", "XGBoostJob"])
def test_job_of_one_pod_asks_for_the_variables_that_the_operator_sets(kind: str) -> None:
    manifest = a_pytorch_job()
    specs = manifest["spec"].pop("pytorchReplicaSpecs")
    del specs["Worker"]
    manifest["kind"] = kind
    manifest["spec"]["pytorchReplicaSpecs" if kind == "PyTorchJob" else "xgbReplicaSpecs"] = specs
    document = convert(manifest, "us-central1")
    (pool,) = document["jobSpec"]["workerPoolSpecs"]
    variables = {item["name"]: item["value"] for item in pool["containerSpec"]["env"]}
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        assert variables[name] == f"$({name})"
    accept(document, default_job_id=None)


@pytest.mark.parametrize(("has_master", "least"), [(False, 1), (True, 2)])
def test_elastic_job_with_a_smaller_minimum_goes_on_with_fewer(
    *, has_master: bool, least: int
) -> None:
    manifest = a_pytorch_job(elasticPolicy={"minReplicas": 1, "maxReplicas": 2})
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    if not has_master:
        del manifest["spec"]["pytorchReplicaSpecs"]["Master"]
    assert accept(
        convert(manifest, "us-central1"), default_job_id=None
    ).plan.restarts.elastic == Elastic(least)


@pytest.mark.parametrize(("least", "most"), [(0, 2), (3, 2), (1, 3), (2, 1)])
def test_elastic_job_with_more_workers_than_replicas_or_none_is_refused(
    least: int, most: int
) -> None:
    manifest = a_pytorch_job(elasticPolicy={"minReplicas": least, "maxReplicas": most})
    manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] = 2
    with pytest.raises(InvalidJob) as caught:
        convert(manifest, "us-central1")
    assert [problem.field for problem in caught.value.problems] == ["spec.elasticPolicy"]


def test_host_name_of_primary_becomes_master_addr_in_arguments() -> None:
    manifest = a_pytorch_job()
    container = manifest["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][
        0
    ]
    container["args"] = ["--init", "tcp://digits-master-0.kubeflow.svc:23456"]
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    assert pools[1]["containerSpec"]["args"] == ["--init", "tcp://$(MASTER_ADDR):23456"]


def a_jobset(
    words: Sequence[str], pods: int = 4, replicas: int = 1, **batch: object
) -> dict[str, Any]:
    container = {
        "name": "train",
        "image": "us-docker.pkg.dev/p/t/train:1",
        "command": list(words),
        "resources": {"limits": {"cpu": "4", "memory": "16Gi"}},
    }
    template = {"spec": {"containers": [container]}}
    spec = {"parallelism": pods, "completions": pods, "template": template, **batch}
    job = {"name": "workers", "replicas": replicas, "template": {"spec": spec}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "digits"},
        "spec": {"replicatedJobs": [job]},
    }


def variables(manifest: dict[str, Any]) -> list[dict[str, str]]:
    """Return the variables of each pool."""
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    return [
        {item["name"]: item["value"] for item in pool["containerSpec"].get("env", [])}
        for pool in pools
    ]


def test_variables_that_kubernetes_sets_in_each_pod_have_their_values() -> None:
    index = {"JOB_COMPLETION_INDEX": "$(RANK)"}
    assert variables(a_jobset(["python", "train.py"])) == [index] * 2
    by_host = a_jobset(["bash", "-c", "RANK=${HOSTNAME##*-} python train.py"])
    assert variables(by_host) == [{**index, "HOSTNAME": "digits-workers-0-$(RANK)"}] * 2
    assert variables(a_jobset(["python", "train.py"], pods=1)) == [{"JOB_COMPLETION_INDEX": "0"}]
    several = a_jobset(["train", "--id=$(JOB_COMPLETION_INDEX)"], pods=1, replicas=3)
    assert variables(several) == [{"JOB_COMPLETION_INDEX": "0"}] * 2
    assert variables(a_jobset(["python", "train.py"], completionMode="NonIndexed")) == [{}] * 2


@pytest.mark.parametrize(
    "manifest",
    [
        a_jobset(["train", "--id=$(JOB_COMPLETION_INDEX)"], replicas=2),
        a_jobset(["sh", "-c", "train --id=$JOB_COMPLETION_INDEX"], completionMode="NonIndexed"),
        a_jobset(["sh", "-c", "RANK=${HOSTNAME##*-} train"], replicas=2),
        a_jobset(["sh", "-c", "RANK=$(hostname | awk -F- '{print $NF}') train"]),
        a_jobset(["sh", "-c", "h=$(hostname); RANK=${h##*-} train"]),
        a_jobset(["sh", "-c", "RANK=$(echo $HOSTNAME | cut -d- -f4) train"], replicas=2),
    ],
    ids=range(6),
)
def test_variable_of_kubernetes_without_a_value_here_is_refused_with_its_place(
    manifest: dict[str, Any],
) -> None:
    with pytest.raises(InvalidJob) as caught:
        convert(manifest, "us-central1")
    path = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].command["
    assert [problem.field.startswith(path) for problem in caught.value.problems] == [True]


def test_type_of_tpu_that_is_not_known_is_named() -> None:
    manifest = a_jobset(["python", "train.py"])
    pod = manifest["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    pod["containers"][0]["resources"] = {"limits": {"google.com/tpu": 4}}
    pod["nodeSelector"] = {
        "cloud.google.com/gke-tpu-accelerator": "tpu7x",
        "cloud.google.com/gke-tpu-topology": "2x2x2",
    }
    with pytest.raises(InvalidJob) as caught:
        convert(manifest, "us-central1")
    assert [problem.problem for problem in caught.value.problems] == [
        "is tpu7x, a type of TPU that jobs cannot have"
    ]


def test_host_name_that_is_only_printed_is_no_problem() -> None:
    assert variables(a_jobset(["sh", "-c", "echo $HOSTNAME $(hostname); train"], replicas=2))


RUN_POLICY: Final = {
    "cleanPodPolicy": "None",
    "ttlSecondsAfterFinished": 604800,
    "activeDeadlineSeconds": 7200,
    "backoffLimit": 3,
    "schedulingPolicy": {"minAvailable": 1, "scheduleTimeoutSeconds": 60},
}


@pytest.mark.parametrize(
    ("kind", "roles", "version"),
    [
        ("TFJob", "tfReplicaSpecs", "v1"),
        ("PyTorchJob", "pytorchReplicaSpecs", "v1"),
        ("XGBoostJob", "xgbReplicaSpecs", "v1"),
        ("MPIJob", "mpiReplicaSpecs", "v2beta1"),
    ],
)
def test_run_policy_of_earlier_releases_stands_under_spec(
    kind: str, roles: str, version: str
) -> None:
    def manifest(**fields: object) -> dict[str, Any]:
        first = "Launcher" if kind == "MPIJob" else "Master"
        spec = {
            roles: {first: {"template": {"spec": {"containers": [{"image": IMAGE}]}}}},
            **fields,
        }
        return {
            "apiVersion": f"kubeflow.org/{version}",
            "kind": kind,
            "metadata": {"name": "digits"},
            "spec": spec,
        }

    early = convert(manifest(**RUN_POLICY), "us-central1")
    today = convert(manifest(runPolicy=RUN_POLICY), "us-central1")
    assert json.dumps(early) == json.dumps(today).replace("spec.runPolicy.", "spec.")

    for wrong, field in (
        ({**RUN_POLICY, "activeDeadlineSeconds": "soon"}, "spec.activeDeadlineSeconds"),
        (
            {**RUN_POLICY, "schedulingPolicy": {"minAvailable": 5}},
            "spec.schedulingPolicy.minAvailable",
        ),
        ({"backoffLimit": 1, "runPolicy": {"backoffLimit": 2}}, "spec.backoffLimit"),
    ):
        with pytest.raises(InvalidJob) as raised:
            convert(manifest(**wrong), "us-central1")
        assert [problem.field for problem in raised.value.problems] == [field]


def test_replicated_jobs_of_jobset_0_1_have_their_own_network() -> None:
    pod = {
        "containers": [
            {"image": IMAGE, "args": ["tcp://set-node-0-0.sub:1", "tcp://set-node-0-0.set:1"]}
        ]
    }
    job = {
        "name": "node",
        "network": {"subdomain": "sub"},
        "template": {"spec": {"template": {"spec": pod}}},
    }
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [job]},
    }
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    assert pools[0]["containerSpec"]["args"] == ["tcp://$(MASTER_ADDR):1"] * 2


KEY_FILE: Final = "/secret/gcp/key.json"
USED_BY_GOOGLE: Final = "credentials of the VM's service account"


@pytest.mark.parametrize(
    ("volume", "mount", "variables", "advice"),
    [
        (
            {"secret": {}},
            "/secret/gcp",
            {"GOOGLE_APPLICATION_CREDENTIALS": KEY_FILE},
            USED_BY_GOOGLE,
        ),
        ({"secret": {}}, "/secret/", {"GOOGLE_APPLICATION_CREDENTIALS": KEY_FILE}, USED_BY_GOOGLE),
        (
            {"configMap": {}},
            "/secret",
            {"GOOGLE_APPLICATION_CREDENTIALS": KEY_FILE},
            USED_BY_GOOGLE,
        ),
        (
            {"projected": {}},
            "/secret",
            {"CLOUDSDK_AUTH_CREDENTIAL_FILE_OVERRIDE": KEY_FILE},
            USED_BY_GOOGLE,
        ),
        ({"projected": {}}, "/var/token", {}, USED_BY_GOOGLE),
        ({"secret": {}}, "/secretive", {"GOOGLE_APPLICATION_CREDENTIALS": KEY_FILE}, "MY_SECRET"),
        ({"secret": {}}, "/wandb", {"NETRC": "/wandb/netrc"}, "MY_SECRET"),
        ({"configMap": {}}, "/etc/run", {}, "into the image"),
        ({"downwardAPI": {}}, "/etc/pod", {}, "RANK"),
        ({"persistentVolumeClaim": {}}, "/data", {"DATA": "/data"}, "gs://"),
        ({"hostPath": {}}, "/data", {}, "gs://"),
    ],
)
def test_advice_about_a_volume_follows_its_user(
    volume: dict[str, Any], mount: str, variables: dict[str, str], advice: str
) -> None:
    manifest = a_pytorch_job()
    pod = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    pod["volumes"] = [{"name": "cache", "emptyDir": {}}, {"name": "used", **volume}]
    pod["containers"][0]["volumeMounts"] = [{"name": "used", "mountPath": mount}]
    pod["containers"][0]["env"] = [
        {"name": name, "value": value} for name, value in variables.items()
    ]
    with pytest.raises(InvalidJob) as raised:
        convert(manifest, "us-central1")
    (problem,) = raised.value.problems
    assert problem.field.endswith("volumes[1]")
    assert advice in problem.example


def test_variable_of_credentials_without_a_file_is_left_out_and_listed() -> None:
    manifest = a_pytorch_job()
    container = manifest["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][
        0
    ]
    container["env"] = [
        {"name": "GOOGLE_APPLICATION_CREDENTIALS", "value": KEY_FILE},
        {"name": "A", "value": "b"},
    ]
    document = convert(manifest, "us-central1")
    names = [
        item["name"] for item in document["jobSpec"]["workerPoolSpecs"][0]["containerSpec"]["env"]
    ]
    assert "A" in names
    assert "GOOGLE_APPLICATION_CREDENTIALS" not in names
    listed = document["trainmaster"]["convertedFrom"]["substitutions"]
    assert [item["replacement"] for item in listed if KEY_FILE in item["requested"]] == ["nothing"]


def test_topology_on_two_hosts_of_gke_runs_on_the_one_host_of_cloud_tpu() -> None:
    pod = {
        "containers": [{"image": IMAGE, "resources": {"limits": {"google.com/tpu": 4}}}],
        "nodeSelector": {
            "cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice",
            "cloud.google.com/gke-tpu-topology": "2x4",
        },
    }
    job = {"name": "node", "template": {"spec": {"parallelism": 2, "template": {"spec": pod}}}}
    manifest = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set"},
        "spec": {"replicatedJobs": [job]},
    }
    plan = accept(convert(manifest, "us-west4"), default_job_id=None).plan
    assert [(group.count, group.tpu and group.tpu.type, group.hosts) for group in plan.groups] == [
        (1, "v5litepod-8", 1)
    ]
    assert "ct5lp-hightpu-8t" in [item.replacement for item in plan.origin.substitutions]


def test_region_is_required_and_named_by_annotation_option_or_zone() -> None:
    manifest = a_pytorch_job()
    with pytest.raises(InvalidJob) as raised:
        convert(manifest)
    assert [problem.field for problem in raised.value.problems] == [
        "metadata.annotations.trainmaster.region"
    ]
    manifest["metadata"]["annotations"] = {
        "trainmaster": "region: europe-west4\nstallTimeout: 900s"
    }
    extension = convert(manifest)["trainmaster"]
    assert (extension["region"], extension["stallTimeout"]) == ("europe-west4", "900s")
    assert convert(manifest, "us-east1")["trainmaster"]["region"] == "us-east1"


@pytest.mark.parametrize(
    ("resources", "selector", "machine"),
    [
        ({}, {}, "n1-standard-4"),
        ({"cpu": "500m", "memory": "16Gi"}, {}, "n1-highmem-4"),
        ({"cpu": 17}, {}, "n1-highcpu-32"),
        (
            {"nvidia.com/gpu": 8},
            {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
            "a3-highgpu-8g",
        ),
        (
            {"nvidia.com/gpu": 1, "memory": "100G"},
            {"cloud.google.com/gke-accelerator": "nvidia-l4"},
            "g2-standard-32",
        ),
        (
            {"nvidia.com/gpu": 1},
            {"node.kubernetes.io/instance-type": "g2-standard-12"},
            "g2-standard-12",
        ),
        ({"cpu": 8}, {"node.kubernetes.io/instance-type": "c3-standard-8"}, "c3-standard-8"),
    ],
)
def test_smallest_machine_for_resources_is_selected(
    resources: dict[str, object], selector: dict[str, str], machine: str
) -> None:
    manifest = a_pytorch_job()
    for role in manifest["spec"]["pytorchReplicaSpecs"].values():
        role["template"]["spec"]["nodeSelector"] = selector
        role["template"]["spec"]["containers"][0]["resources"] = {"limits": resources}
    manifest["metadata"]["annotations"] = {"trainmaster": "spot: all"}
    pools = convert(manifest, "us-central1")["jobSpec"]["workerPoolSpecs"]
    assert pools[0]["machineSpec"]["machineType"] == machine


def test_several_documents_are_accepted_only_as_objects_of_kubernetes() -> None:
    with pytest.raises(InvalidJob, match="the file has 2"):
        read_document(b"jobId: a\n---\njobId: b\n", "job.yaml")
    twice = yaml.safe_dump_all([a_pytorch_job(), a_pytorch_job()]).encode()
    with pytest.raises(InvalidJob, match="has 2 objects besides runtimes"):
        read_document(twice, "job.yaml")


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all values in a document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


JUNK: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [None, True, -1, 10**12, 0.5, "", "x", "$(A)", [], [1], [None], {}, {"name": 3}, {"x": {}}]
)


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(data=st.data())
def test_any_change_of_a_manifest_leads_to_a_job_file_or_to_problems(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(MANIFESTS))
    document: Any = copy.deepcopy(
        dict(parse_document((FOLDER / f"{name}.yaml").read_bytes(), f"{name}.yaml"))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(document)[1:]))
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = copy.deepcopy(data.draw(JUNK))
    with contextlib.suppress(InvalidJob):
        accept({**convert(document, "us-central1"), "jobId": "j"}, default_job_id=None)


@pytest.mark.parametrize(
    ("resources", "field", "example"),
    [
        ({"limits": {"cpu": "4k", "memory": "16gb"}}, "limits.memory", "16Gi"),
        ({"limits": {"memory": "32 GB"}}, "limits.memory", "32Gi"),
        ({"requests": {"memory": "512mib"}}, "requests.memory", "512Mi"),
        ({"requests": {"cpu": "four"}}, "requests.cpu", "4"),
        ({"limits": {"nvidia.com/gpu": "one"}}, "limits.nvidia.com/gpu", "16Gi"),
        ({"limits": {"ephemeral-storage": "1 terabyte"}}, "limits.ephemeral-storage", "16Gi"),
    ],
)
def test_wrong_quantity_is_one_problem_at_the_field_that_has_it(
    resources: dict[str, dict[str, str]], field: str, example: str
) -> None:
    document = a_pytorch_job()
    for spec in document["spec"]["pytorchReplicaSpecs"].values():
        spec["template"]["spec"]["containers"][0]["resources"] = resources
    with pytest.raises(InvalidJob) as raised:
        convert(document, "us-central1")
    for problem in raised.value.problems:
        assert problem.field.endswith(f".resources.{field}")
        assert "is not a quantity" in problem.problem
        assert problem.example == example


def test_fields_of_kubernetes_without_meaning_here_are_no_unknown_fields() -> None:
    document = a_pytorch_job()
    pod = document["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod |= {"shareProcessNamespace": True, "hostUsers": False, "overhead": {"cpu": "1"}}
    listed = convert(document, "us-central1")["trainmaster"]["convertedFrom"]["substitutions"]
    assert "spec.pytorchReplicaSpecs.Worker.template.spec.shareProcessNamespace" in {
        item["field"] for item in listed
    }
    pod["schedulingGates"] = [{"name": "x"}]
    with pytest.raises(InvalidJob, match="scheduling_gates"):
        convert(document, "us-central1")
