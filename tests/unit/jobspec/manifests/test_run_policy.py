"""What a manifest says about failures and its size: restart policies, the elastic policy, and
where earlier releases of Kubeflow have the run policy.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from tests.unit.jobspec.manifests.documents import IMAGE, a_pytorch_job
from trainmaster.core.model.exit_policy import Preset
from trainmaster.core.model.plan import Elastic
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.manifests.convert import convert
from trainmaster.jobspec.problems import InvalidJob


@pytest.mark.parametrize(
    ("policies", "backoff_limit", "disables", "rules"),
    [
        (("Never", "Never"), None, True, []),
        (("OnFailure", "OnFailure"), 0, True, []),
        (("OnFailure", "OnFailure"), 3, False, []),
        (("ExitCode", "ExitCode"), None, False, ["1-127: fail", "128-255: restart"]),
        (("OnFailure", "Never"), None, False, ["1-255: fail worker"]),
    ],
)
def test_restart_policies_of_master_and_worker_lead_to_an_exit_policy(
    policies: tuple[str, str],
    backoff_limit: int | None,
    disables: bool,
    rules: list[str],
) -> None:
    manifest = a_pytorch_job(runPolicy={"backoffLimit": backoff_limit})
    for role, policy in zip(("Master", "Worker"), policies, strict=True):
        manifest["spec"]["pytorchReplicaSpecs"][role]["restartPolicy"] = policy
    plan = accept(convert(manifest, "us-central1"), default_job_id=None).plan
    assert plan.restarts.disable_retries is disables
    if not disables:
        exits = plan.restarts.exit_policy
        found = [
            " ".join((f"{rule.first}-{rule.last}: {rule.action.value}", *rule.task_types))
            for rule in exits.rules
        ]
        assert (exits.preset, found) == (Preset.RESTART, rules)


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
