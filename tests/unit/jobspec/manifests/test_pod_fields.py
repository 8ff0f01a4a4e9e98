"""Volumes, files of credentials and other fields of a pod that have no counterpart in a job:
each is left out and listed, or refused with advice.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.unit.jobspec.manifests.documents import a_pytorch_job, pod_of
from trainmaster.jobspec.manifests.convert import convert
from trainmaster.jobspec.problems import InvalidJob

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
    pod = pod_of(manifest, "Master")
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
    (container,) = pod_of(manifest, "Master")["containers"]
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


def test_fields_of_kubernetes_without_meaning_here_are_no_unknown_fields() -> None:
    document = a_pytorch_job()
    pod = pod_of(document, "Worker")
    pod |= {"shareProcessNamespace": True, "hostUsers": False, "overhead": {"cpu": "1"}}
    listed = convert(document, "us-central1")["trainmaster"]["convertedFrom"]["substitutions"]
    assert "spec.pytorchReplicaSpecs.Worker.template.spec.shareProcessNamespace" in {
        item["field"] for item in listed
    }
    pod["schedulingGates"] = [{"name": "x"}]
    with pytest.raises(InvalidJob, match="scheduling_gates"):
        convert(document, "us-central1")
