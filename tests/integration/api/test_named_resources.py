"""The API asks Google, with the caller's token, whether the caller may use the resources that a job
names.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.api.client import (
    CUSTOM_JOBS,
    JOBS,
    OWNER,
    PIPELINES,
    TUNING_JOBS,
    Api,
    an_app,
)
from tests.support.jobs import a_spec
from tests.support.world import World
from tests.unit.security.test_acting_for_others import JOBS as NAMING_JOBS
from tests.unit.security.test_acting_for_others import KEY, NETWORK, in_extension, in_training_input
from trainmaster.api.permissions import COLLECTIONS, CREATE, vertex_permissions
from trainmaster.core.intake.named_resources import AllowedResources, ResourceKind
from trainmaster_local.memory.access import MemoryAccess

VERTEX_COLLECTIONS = {
    "jobSpec": CUSTOM_JOBS,
    "trainingTaskInputs": PIPELINES,
    "trialJobSpec": TUNING_JOBS,
}
"""A field that only documents of this collection have."""
NETWORK_USE = {"compute.networks.use", "compute.subnetworks.use"}
CASES: list[tuple[ResourceKind, dict[str, Any], str, set[str]]] = [
    (ResourceKind.NETWORK, in_training_input(network=NETWORK), "123", NETWORK_USE),
    (
        ResourceKind.KMS_KEY,
        in_training_input(encryptionConfig={"kmsKeyName": KEY}),
        "p",
        {"cloudkms.cryptoKeyVersions.useToEncrypt"},
    ),
    (
        ResourceKind.IMAGE,
        in_extension(image="projects/q/global/images/i"),
        "q",
        {"compute.images.useReadOnly"},
    ),
    (
        ResourceKind.RESERVATION,
        in_extension(reservation="projects/r/reservations/x"),
        "r",
        {"compute.instances.create"},
    ),
    (ResourceKind.RESERVATION, in_extension(reservation="mine"), "", {"compute.instances.create"}),
    (
        ResourceKind.SECRET,
        in_extension(secrets={"K": "projects/s/secrets/k"}),
        "s",
        {"secretmanager.versions.access"},
    ),
    (
        ResourceKind.SECRET,
        in_extension(secrets={"K": "k/versions/1"}),
        "",
        {"secretmanager.versions.access"},
    ),
]
"""Kind of a resource, a document that names one, the project that the resource is in (empty: the
installation's), and the permissions on it that the caller needs.
"""


def grant(api: Api, project: str, permissions: set[str]) -> None:
    """Give the owner of the jobs these permissions on a project; empty: the installation's."""
    api.access.elsewhere = {(OWNER, project): permissions} if project else {}
    api.access.tokens = {
        **api.access.tokens,
        OWNER: {CREATE, *(permissions if not project else ())},
    }


@pytest.mark.parametrize(
    ("kind", "document", "project", "permissions"), CASES, ids=[kind.value for kind, *_ in CASES]
)
def test_resource_requires_its_permissions_on_its_project(
    api: Api,
    world: World,
    kind: ResourceKind,
    document: dict[str, Any],
    project: str,
    permissions: set[str],
) -> None:
    body = {"jobId": "digits_1", **document}
    for missing in permissions:
        grant(api, project, permissions - {missing})
        error = api.send_refused("POST", JOBS, body)
        assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED"), kind
        assert missing in error["message"]
        assert error["message"].startswith("Field: ")
    grant(api, "elsewhere", permissions)
    assert api.send_refused("POST", JOBS, body)["code"] == 403
    assert world.store.recent_jobs(5) == ()
    grant(api, project, permissions)
    assert api.send("POST", JOBS, body)[0] == 200


def test_every_kind_but_accounts_has_a_case() -> None:
    assert {kind for kind, *_ in CASES} == set(ResourceKind) - {ResourceKind.SERVICE_ACCOUNT}


@pytest.mark.parametrize("name", NAMING_JOBS)
def test_caller_without_permissions_elsewhere_can_name_no_resource(
    api: Api, world: World, name: str
) -> None:
    document, field, _ = NAMING_JOBS[name]
    grant(
        api,
        project="",
        permissions={vertex_permissions(collection)[0] for collection in COLLECTIONS},
    )
    collection = next((path for key, path in VERTEX_COLLECTIONS.items() if key in document), JOBS)
    body = {"jobId": "digits_1", **document} if collection == JOBS else document
    error = api.send_refused("POST", collection, body)
    assert error["code"] == 403, error
    assert field in error["message"] or "act as service_account" in error["message"]
    assert world.store.recent_jobs(5) == ()


def test_each_project_is_asked_about_once(api: Api) -> None:
    secrets = {f"KEY_{number}": f"projects/s/secrets/k{number}" for number in range(20)}
    grant(api, "s", {"secretmanager.versions.access"})
    at_first = api.access.calls
    api.create("without_secrets")
    calls_without_secrets = api.access.calls - at_first
    before = api.access.calls
    assert api.send("POST", JOBS, {"jobId": "many", **in_extension(secrets=secrets)})[0] == 200
    assert api.access.calls - before == calls_without_secrets + 1


def test_resource_that_is_open_to_every_job_needs_no_permission(
    access: MemoryAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(allowed=AllowedResources("my-project", ("secret=projects/my-project/secrets/k",)))
    api = Api(world, access, an_app(world, access, monkeypatch).test_client())
    grant(api, project="", permissions=set())
    assert (
        api.send("POST", JOBS, {"jobId": "open", **in_extension(secrets={"K": "k/versions/1"})})[0]
        == 200
    )
    assert (
        api.send("POST", JOBS, {"jobId": "other", **in_extension(secrets={"K": "other"})})[0] == 403
    )


def test_job_from_the_api_is_marked_as_such(api: Api, world: World) -> None:
    api.create()
    world_of_message = World(job_id="other", store=world.store)
    world_of_message.submit(a_spec())
    assert world.job.through_api
    assert not world_of_message.job.through_api


def test_jobs_of_messages_do_not_use_the_quota_of_the_api(api: Api, world: World) -> None:
    for number in range(70):
        World(job_id=f"flood_{number}", store=world.store).submit(source=None)
    api.create()
