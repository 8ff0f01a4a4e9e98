"""Authentication and permissions: 401, 403, and how often Google is queried."""

from __future__ import annotations

import json
import logging

import pytest

from tests.integration.api.client import (
    ACCOUNT,
    CUSTOM_JOBS,
    JOBS,
    OWNER,
    PIPELINES,
    TUNING_JOBS,
    UNPRIVILEGED,
    VIEWER,
    Api,
    an_app,
)
from tests.integration.api.test_custom_jobs import POOLS
from tests.support.captured_logs import CapturedLogs
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.api.cached_access import ENTRIES_MAX, GRANTED_S, UNKNOWN_S, CachedAccess
from trainmaster.api.permissions import (
    CANCEL,
    CREATE,
    DELETE,
    EQUIVALENT_PERMISSIONS,
    GET,
    LIST,
    PROJECT,
)
from trainmaster.api.routes import ROUTES
from trainmaster.errors import TemporaryError
from trainmaster.messaging import push
from trainmaster.ports import CallersProjectError, UnknownTokenError
from trainmaster_local.memory.access import MemoryAccess

RESOURCES = CUSTOM_JOBS.replace("customJobs", "persistentResources")
CALLS = [
    ("POST", JOBS, CREATE),
    ("POST", f"{JOBS}:submit", CREATE),
    ("GET", JOBS, LIST),
    ("GET", f"{JOBS}/digits_1", GET),
    ("PATCH", f"{JOBS}/digits_1", CREATE),
    ("GET", f"{JOBS}/digits_1:explain", GET),
    ("POST", f"{JOBS}/digits_1:cancel", CANCEL),
    ("GET", f"{JOBS}/digits_1:getIamPolicy", GET),
    ("POST", f"{JOBS}/digits_1:setIamPolicy", CREATE),
    ("GET", "/v1/projects/my-project:getConfig", PROJECT),
    ("GET", "/v1/projects/my-project/locations", PROJECT),
    ("GET", "/v1/projects/my-project/locations/us-central1", PROJECT),
    ("POST", CUSTOM_JOBS, CREATE),
    ("GET", CUSTOM_JOBS, LIST),
    ("GET", f"{CUSTOM_JOBS}/1", GET),
    ("GET", f"{CUSTOM_JOBS}/1:explain", GET),
    ("POST", f"{CUSTOM_JOBS}/1:cancel", CANCEL),
    ("DELETE", f"{CUSTOM_JOBS}/1", DELETE),
    *(
        (method, f"{collection}{path}", f"aiplatform.{collection.rpartition('/')[2]}.{verb}")
        for collection in (TUNING_JOBS, PIPELINES)
        for method, path, verb in (
            ("POST", "", "create"),
            ("GET", "", "list"),
            ("GET", "/17", "get"),
            ("GET", "/17:explain", "get"),
            ("POST", "/17:cancel", "cancel"),
            ("DELETE", "/17", "delete"),
        )
    ),
    *(
        (method, f"{RESOURCES}{path}", f"aiplatform.persistentResources.{verb}")
        for method, path, verb in (
            ("POST", "", "create"),
            ("GET", "", "list"),
            ("GET", "/r", "get"),
            ("DELETE", "/r", "delete"),
        )
    ),
]


def test_every_method_but_test_iam_permissions_requires_a_permission() -> None:
    assert sorted(permission for _, _, permission in CALLS) == sorted(
        route.permission for route in ROUTES if route.permission
    )
    assert [route.address for route in ROUTES if route.permission is None] == [
        "/v1/projects/{project}/jobs/{job}:testIamPermissions"
    ]


@pytest.mark.parametrize(("method", "path", "permission"), CALLS)
def test_call_without_permission_is_denied_with_the_permissions_name(
    api: Api, method: str, path: str, permission: str
) -> None:
    error = api.send_refused(method, path, {}, token=UNPRIVILEGED)
    resource = "//cloudresourcemanager.googleapis.com/projects/my-project"
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert (
        error["message"]
        == f"Permission '{permission}' denied on resource '{resource}' (or it may not exist)."
        " Trainmaster's administrator grants it by the variables api_users and api_viewers."
    )
    assert error["details"][0]["metadata"]["permission"] == permission


def test_viewer_can_read_jobs_but_not_change_them(api: Api, world: World) -> None:
    api.create()
    assert api.send_ok("GET", f"{JOBS}/digits_1", token=VIEWER)["jobId"] == "digits_1"
    assert len(api.list(token=VIEWER)["jobs"]) == 1
    for method, path in [
        ("POST", JOBS),
        ("PATCH", f"{JOBS}/digits_1"),
        ("POST", f"{JOBS}/digits_1:cancel"),
    ]:
        assert (
            api.send_refused(method, path, {"jobId": "other", **a_spec()}, token=VIEWER)["code"]
            == 403
        )
    assert (world.state, len(world.store.recent_jobs(5))) == ("QUEUED", 1)


@pytest.mark.parametrize("token", [None, "", " ", "tokén", "a b"])
def test_call_without_token_is_unauthenticated(api: Api, token: str | None) -> None:
    error = api.send_refused("GET", JOBS, token=token)
    assert (error["code"], error["status"], error["details"][0]["reason"]) == (
        401,
        "UNAUTHENTICATED",
        "CREDENTIALS_MISSING",
    )
    assert api.access.calls == 0


def test_unknown_token_is_unauthenticated_and_never_logged(
    api: Api, caplog: CapturedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("trainmaster"), "propagate", True)
    with caplog.at_level(logging.DEBUG):
        error = api.send_refused("GET", f"{JOBS}/digits_1", token="ya29.an-expired-access-token")
        api.create()
    assert (error["code"], error["details"][0]["reason"]) == (401, "ACCESS_TOKEN_EXPIRED")
    assert "ya29" not in caplog.text
    assert OWNER not in caplog.text
    answer = api.http.get(JOBS, headers={"Authorization": "Bearer ya29.an-expired-access-token"})
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="https://accounts.google.com/"'
    assert b"ya29" not in answer.data


def test_call_for_another_project_is_denied_without_naming_this_one(api: Api) -> None:
    error = api.send_refused(
        "POST", "/v1/projects/another-project/jobs", {"jobId": "digits_1", **a_spec()}
    )
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert "another-project" in error["message"]
    assert "my-project" not in error["message"], "the served project must not be revealed"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/v1/projects/my-project"),
        ("DELETE", f"{JOBS}/digits_1"),
        ("POST", f"{JOBS}/digits_1:resume"),
        ("POST", "/v1/projects/my-project/models"),
        ("PUT", JOBS),
        ("GET", f"/v1beta1{JOBS.removeprefix('/v1')}"),
    ],
)
def test_unknown_method_is_not_found(api: Api, method: str, path: str) -> None:
    error = api.send_refused(method, path)
    assert (error["code"], error["status"]) == (404, "NOT_FOUND")


def test_failed_permission_check_is_unavailable_and_grants_nothing(
    api: Api, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    def raise_temporary_error(*_: object) -> frozenset[str]:
        raise TemporaryError("Cloud Resource Manager is unavailable")

    monkeypatch.setattr(api.access, "api_permissions", raise_temporary_error)
    error = api.send_refused("POST", JOBS, {"jobId": "digits_1", **a_spec()})
    assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
    assert world.store.recent_jobs(5) == ()


def test_credentials_of_a_project_without_the_api_are_denied_with_the_remedy(
    api: Api, monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    def raise_callers_project_error(*_: object) -> frozenset[str]:
        raise CallersProjectError("Enable it there (gcloud services enable …).")

    monkeypatch.setattr(api.access, "api_permissions", raise_callers_project_error)
    error = api.send_refused("POST", JOBS, {"jobId": "digits_1", **a_spec()})
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert "gcloud services enable" in error["message"]
    assert world.store.recent_jobs(5) == ()


def test_unaccepted_token_names_the_scope_that_key_files_need(api: Api) -> None:
    """Source: AIP-4111: without a scope, Google's libraries sign a JWT for one API instead of
    getting a token.
    """
    error = api.send_refused("GET", JOBS, token="eyJhbGciOiJSUzI1NiJ9.eyJhdWQiOiJ4In0.c2ln")
    assert error["code"] == 401
    assert "auth/cloud-platform" in error["message"]


@pytest.mark.parametrize("path", [JOBS, CUSTOM_JOBS])
def test_job_with_service_account_requires_permission_to_act_as_it(
    api: Api, world: World, path: str
) -> None:
    mine, other = (
        "mine@my-project.iam.gserviceaccount.com",
        "other@my-project.iam.gserviceaccount.com",
    )
    api.access.accounts = {OWNER: {mine}}

    def body(account: str) -> dict[str, object]:
        if path == JOBS:
            return {"jobId": "digits_1", **a_spec(serviceAccount=account)}
        return {
            "displayName": "x",
            "jobSpec": {"workerPoolSpecs": POOLS, "serviceAccount": account},
        }

    error = api.send_refused("POST", path, body(other))
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert error["message"] == (
        f"You do not have permission to act as service_account: {other}. (or it may not exist)."
    )
    assert world.store.recent_jobs(5) == ()
    assert api.send("POST", path, body(mine))[0] == 200


CHANGES = [(method, path) for method, path, _ in CALLS if method != "GET"]


@pytest.mark.parametrize(("method", "path"), CHANGES)
def test_token_for_reading_changes_nothing_whatever_its_owner_may_do(
    api: Api, world: World, method: str, path: str
) -> None:
    """Such a token was given to a dashboard: its holder must not create, cancel or delete jobs with
    it.
    """
    api.create()
    api.access.read_only = {OWNER}
    error = api.send_refused(method, path, {"jobId": "other", **a_spec()})
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert error["details"][0]["reason"] == "ACCESS_TOKEN_SCOPE_INSUFFICIENT"
    assert (world.state, len(world.store.recent_jobs(5))) == ("QUEUED", 1)


def test_token_for_reading_reads(api: Api) -> None:
    api.create()
    api.access.read_only = {OWNER}
    assert api.get()["jobId"] == "digits_1"
    answer = api.send("POST", f"{JOBS}/digits_1:testIamPermissions", {"permissions": [GET]})
    assert answer == (200, {"permissions": [GET]})


def test_scope_of_a_token_is_looked_up_once() -> None:
    access = MemoryAccess({OWNER: {CREATE}}, read_only={VIEWER})
    now = [0.0]
    cached = CachedAccess(access, lambda: now[0])
    for _ in range(3):
        now[0] += 10 * GRANTED_S
        assert cached.has_full_scope(OWNER)
        assert not cached.has_full_scope(VIEWER)
    assert access.calls == 2


@pytest.mark.parametrize(
    "token",
    [
        "x",
        "ya29.short",
        "a" * 100,
        "eyJhbGciOiJub25lIn0",
        "ya29.an-access-token-with-a;semicolon",
        "1//refresh-token-x",
    ],
)
def test_text_that_is_not_a_google_token_costs_no_query(api: Api, token: str) -> None:
    error = api.send_refused("GET", JOBS, token=token)
    assert (error["code"], error["status"]) == (401, "UNAUTHENTICATED")
    assert api.access.calls == 0


def test_unknown_token_is_queried_once_in_a_while() -> None:
    access = MemoryAccess({})
    now = [0.0]
    cached = CachedAccess(access, lambda: now[0])

    def ask() -> None:
        with pytest.raises(UnknownTokenError):
            cached.granted_permissions("ya29.an-expired-access-token", [GET])

    for _ in range(5):
        ask()
    assert access.calls == 1
    now[0] = UNKNOWN_S + 1
    ask()
    assert access.calls == 2


def test_permission_on_one_project_is_not_cached_for_another() -> None:
    access = MemoryAccess({OWNER: {GET}}, elsewhere={(OWNER, "q"): {CREATE}})
    cached = CachedAccess(access, lambda: 0.0)
    assert cached.granted_permissions(OWNER, [GET, CREATE]) == {GET}
    assert cached.granted_permissions(OWNER, [GET, CREATE], "q") == {CREATE}
    assert cached.granted_permissions(OWNER, [GET, CREATE], "r") == frozenset()
    assert cached.granted_permissions(OWNER, [GET, CREATE]) == {GET}, "nor the other way round"


def test_every_caller_may_use_the_default_service_account(api: Api) -> None:
    api.create("as_it_is")
    api.create("by_name", serviceAccount=ACCOUNT)


def test_unexpected_exception_is_internal_error_and_logged(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch, caplog: CapturedLogs
) -> None:
    monkeypatch.setattr(logging.getLogger("trainmaster"), "propagate", True)
    monkeypatch.setattr(world.store, "load", lambda *_, **__: 1 / 0)
    error = api.send_refused("GET", f"{JOBS}/digits_1")
    assert error == {"code": 500, "message": "Internal error encountered.", "status": "INTERNAL"}
    assert "ZeroDivisionError" in caplog.text


def test_test_iam_permissions_accepts_old_and_current_names(api: Api) -> None:
    def held(token: str, *permissions: str) -> list[str]:
        response = api.send_ok(
            "POST",
            f"{JOBS}/unknown:testIamPermissions",
            {"permissions": list(permissions)},
            schema="GoogleIamV1__TestIamPermissionsResponse",
            token=token,
        )
        return list(response.get("permissions", []))

    assert held(VIEWER, "ml.jobs.get", "ml.jobs.cancel", GET, "storage.objects.get") == [
        "ml.jobs.get",
        GET,
    ]
    assert held(OWNER, *EQUIVALENT_PERMISSIONS) == list(EQUIVALENT_PERMISSIONS)
    assert held(UNPRIVILEGED, *EQUIVALENT_PERMISSIONS) == []
    assert held(OWNER, "storage.objects.get") == []


def test_job_policy_is_empty_and_cannot_be_set(api: Api) -> None:
    api.create()
    policy = api.send_ok("GET", f"{JOBS}/digits_1:getIamPolicy", schema="GoogleIamV1__Policy")
    assert policy == {"etag": "ACAB"}
    assert (
        api.send_ok(
            "POST",
            f"{JOBS}/digits_1:setIamPolicy",
            {"policy": policy},
            schema="GoogleIamV1__Policy",
        )
        == policy
    )
    binding = {"role": "roles/viewer", "members": ["user:a@example.com"]}
    error = api.send_refused(
        "POST", f"{JOBS}/digits_1:setIamPolicy", {"policy": {"bindings": [binding]}}
    )
    assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")


def test_config_has_service_account_and_locations_are_the_regions(api: Api) -> None:
    config = api.send_ok("GET", "/v1/projects/my-project:getConfig", schema="GetConfigResponse")
    assert config == {
        "serviceAccount": ACCOUNT,
        "serviceAccountProject": "123456789012",
        "config": {"tpuServiceAccount": ACCOUNT},
    }
    listed = api.send_ok(
        "GET", "/v1/projects/my-project/locations", schema="ListLocationsResponse"
    )["locations"]
    location = api.send_ok(
        "GET", "/v1/projects/my-project/locations/us-central1", schema="Location"
    )
    assert location == {
        "name": "projects/my-project/locations/us-central1",
        "capabilities": [{"type": "TRAINING"}],
    }
    assert location in listed
    assert api.send_refused("GET", "/v1/projects/my-project/locations/atlantis")["code"] == 404


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_granted_permission_is_cached_for_a_minute_and_denied_one_never() -> None:
    granted = {"t": {GET}}
    google, clock = MemoryAccess(granted), Clock()
    access = CachedAccess(google, clock)
    for _ in range(3):
        assert access.granted_permissions("t", [GET]) == {GET}
    assert google.calls == 1
    for _ in range(2):
        assert access.granted_permissions("t", [GET, LIST]) == {GET}
    granted["t"].add(LIST)
    assert access.granted_permissions("t", [GET, LIST]) == {GET, LIST}, (
        "a new permission counts at once"
    )
    granted["t"].clear()
    assert access.granted_permissions("t", [GET]) == {GET}
    clock.now = GRANTED_S
    assert access.granted_permissions("t", [GET]) == frozenset(), (
        "a revoked permission ends after a minute"
    )


def test_permission_to_act_as_account_is_cached_and_denial_never() -> None:
    google, clock = MemoryAccess({"t": set()}, {"t": {"a@p"}}), Clock()
    access = CachedAccess(google, clock)
    assert [access.may_act_as("t", account) for account in ("a@p", "b@p", "a@p", "b@p")] == [
        True,
        False,
        True,
        False,
    ]
    assert google.calls == 3
    clock.now = GRANTED_S
    google.accounts = {}
    assert not access.may_act_as("t", "a@p")


def test_email_and_project_number_are_queried_once() -> None:
    google = MemoryAccess({"t": set(), "u": set()}, emails={"t": "anna@example.com"})
    access = CachedAccess(google, Clock())
    assert [access.email(token) for token in ("t", "u", "t", "u")] == [
        "anna@example.com",
        None,
        "anna@example.com",
        None,
    ]
    assert [access.project_number("t") for _ in range(3)] == [google.number] * 3
    assert google.calls == 3
    for number in range(ENTRIES_MAX + 10):
        access.email(f"token-{number}")
    assert len(access._emails) == ENTRIES_MAX
    assert "token-" not in repr(access._emails)


def test_cache_is_per_token_bounded_and_contains_no_token() -> None:
    access = CachedAccess(
        MemoryAccess({f"token-{number}": {GET} for number in range(ENTRIES_MAX + 10)}), Clock()
    )
    assert access.granted_permissions("token-0", [GET]) == {GET}
    with pytest.raises(UnknownTokenError):
        access.granted_permissions("another", [GET])
    for number in range(ENTRIES_MAX + 10):
        access.granted_permissions(f"token-{number}", [GET])
    assert len(access._granted) == ENTRIES_MAX
    assert "token-" not in repr(access._granted)


def test_pubsub_push_request_is_not_found_at_the_api(api: Api) -> None:
    """A Pub/Sub push request has no access token."""
    assert push.decode(b'{"message": {}}').data == b""
    assert api.send_refused("POST", "/", {"message": {}}, token=None)["code"] == 404


def test_only_installed_regions_are_listed_and_accepted(
    world: World, access: MemoryAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.regions = ("us-east1",)
    api = Api(world, access, an_app(world, access, monkeypatch).test_client())
    listed = api.send_ok(
        "GET", "/v1/projects/my-project/locations", schema="ListLocationsResponse"
    )["locations"]
    assert [location["name"] for location in listed] == ["projects/my-project/locations/us-east1"]
    error = api.send_refused("POST", JOBS, {"jobId": "digits_1", **a_spec()})
    assert error["code"] == 400
    assert "region" in json.dumps(error)
    assert "worker_regions" in error["message"]
