"""Who may do what: 401, 403, and what is asked of Google how often."""

from __future__ import annotations

import logging

import pytest

from shared.api.cached_access import ENTRIES_MAX, GRANTED_S, CachedAccess
from shared.api.permissions import CANCEL, CREATE, DELETE, EQUIVALENT_PERMISSIONS, GET, LIST, PROJECT
from shared.api.routes import ROUTES
from shared.errors import TemporaryError
from shared.memory.access import MemoryAccess
from shared.messaging import push
from shared.ports import UnknownTokenError
from tests.integration.api.client import ACCOUNT, CUSTOM_JOBS, JOBS, NOBODY, OWNER, TUNING_JOBS, VIEWER, Api
from tests.integration.api.test_custom_jobs import POOLS
from tests.support.jobs import a_spec
from tests.support.world import World

ASKED = [
    ("POST", JOBS, CREATE),
    ("GET", JOBS, LIST),
    ("GET", f"{JOBS}/digits_1", GET),
    ("PATCH", f"{JOBS}/digits_1", CREATE),
    ("POST", f"{JOBS}/digits_1:cancel", CANCEL),
    ("GET", f"{JOBS}/digits_1:getIamPolicy", GET),
    ("POST", f"{JOBS}/digits_1:setIamPolicy", CREATE),
    ("GET", "/v1/projects/my-project:getConfig", PROJECT),
    ("GET", "/v1/projects/my-project/locations", PROJECT),
    ("GET", "/v1/projects/my-project/locations/us-central1", PROJECT),
    ("POST", CUSTOM_JOBS, CREATE),
    ("GET", CUSTOM_JOBS, LIST),
    ("GET", f"{CUSTOM_JOBS}/1", GET),
    ("POST", f"{CUSTOM_JOBS}/1:cancel", CANCEL),
    ("DELETE", f"{CUSTOM_JOBS}/1", DELETE),
    *(
        (method, f"{TUNING_JOBS}{path}", f"aiplatform.hyperparameterTuningJobs.{verb}")
        for method, path, verb in (
            ("POST", "", "create"),
            ("GET", "", "list"),
            ("GET", "/17", "get"),
            ("POST", "/17:cancel", "cancel"),
            ("DELETE", "/17", "delete"),
        )
    ),
]


def test_every_method_but_one_asks_for_a_permission() -> None:
    assert sorted(permission for _, _, permission in ASKED) == sorted(
        route.permission for route in ROUTES if route.permission
    )
    assert [route.address for route in ROUTES if route.permission is None] == [
        "/v1/projects/{project}/jobs/{job}:testIamPermissions"
    ]


@pytest.mark.parametrize(("method", "path", "permission"), ASKED)
def test_who_lacks_the_methods_permission_is_refused_by_its_name(
    api: Api, method: str, path: str, permission: str
) -> None:
    error = api.refused(method, path, {}, token=NOBODY)
    resource = "//cloudresourcemanager.googleapis.com/projects/my-project"
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert error["message"] == f"Permission '{permission}' denied on resource '{resource}' (or it may not exist)."
    assert error["details"][0]["metadata"]["permission"] == permission


def test_who_may_only_look_may_look_and_no_more(api: Api, world: World) -> None:
    api.create()
    assert api.done("GET", f"{JOBS}/digits_1", token=VIEWER)["jobId"] == "digits_1"
    assert len(api.list(token=VIEWER)["jobs"]) == 1
    for method, path in [("POST", JOBS), ("PATCH", f"{JOBS}/digits_1"), ("POST", f"{JOBS}/digits_1:cancel")]:
        assert api.refused(method, path, {"jobId": "other", **a_spec()}, token=VIEWER)["code"] == 403
    assert (world.state, len(world.store.recent_jobs(5))) == ("QUEUED", 1)


@pytest.mark.parametrize("token", [None, "", " ", "tokén", "a b"])
def test_without_a_token_nobody_comes_in(api: Api, token: str | None) -> None:
    error = api.refused("GET", JOBS, token=token)
    assert (error["code"], error["status"], error["details"][0]["reason"]) == (
        401,
        "UNAUTHENTICATED",
        "CREDENTIALS_MISSING",
    )
    assert api.access.calls == 0


def test_a_token_that_google_does_not_know_is_told_so_and_is_in_no_log(
    api: Api, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("shared"), "propagate", True)
    with caplog.at_level(logging.DEBUG):
        error = api.refused("GET", f"{JOBS}/digits_1", token="ya29.expired")
        api.create()
    assert (error["code"], error["details"][0]["reason"]) == (401, "ACCESS_TOKEN_EXPIRED")
    assert "ya29" not in caplog.text
    assert OWNER not in caplog.text
    answer = api.http.get(JOBS, headers={"Authorization": "Bearer ya29.expired"})
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="https://accounts.google.com/"'
    assert b"ya29" not in answer.data


def test_another_project_is_not_served_whoever_asks(api: Api) -> None:
    error = api.refused("POST", "/v1/projects/another-project/jobs", {"jobId": "digits_1", **a_spec()})
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert "another-project" in error["message"]
    assert "my-project" not in error["message"], "what is served here is told to nobody who guesses"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"),
        ("GET", "/v1/projects/my-project"),
        ("DELETE", f"{JOBS}/digits_1"),
        ("POST", f"{JOBS}/digits_1:resume"),
        ("POST", "/v1/projects/my-project/models"),
        ("PUT", JOBS),
        ("GET", f"/v1beta1{JOBS[3:]}"),
    ],
)
def test_a_method_that_there_is_not_is_not_found(api: Api, method: str, path: str) -> None:
    error = api.refused(method, path)
    assert (error["code"], error["status"]) == (404, "NOT_FOUND")


def test_trouble_with_the_question_is_never_a_yes(api: Api, monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    def broken(*_: object) -> frozenset[str]:
        raise TemporaryError("Cloud Resource Manager does not answer")

    monkeypatch.setattr(api.access, "granted_permissions", broken)
    error = api.refused("POST", JOBS, {"jobId": "digits_1", **a_spec()})
    assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
    assert world.store.recent_jobs(5) == ()


@pytest.mark.parametrize("path", [JOBS, CUSTOM_JOBS])
def test_a_job_runs_as_an_account_only_for_who_may_act_as_it(api: Api, world: World, path: str) -> None:
    mine, other = "mine@my-project.iam.gserviceaccount.com", "other@my-project.iam.gserviceaccount.com"
    api.access.accounts = {OWNER: {mine}}

    def body(account: str) -> dict[str, object]:
        if path == JOBS:
            return {"jobId": "digits_1", **a_spec(serviceAccount=account)}
        return {"displayName": "x", "jobSpec": {"workerPoolSpecs": POOLS, "serviceAccount": account}}

    error = api.refused("POST", path, body(other))
    assert (error["code"], error["status"]) == (403, "PERMISSION_DENIED")
    assert error["message"] == (
        f"You do not have permission to act as service_account: {other}. (or it may not exist)."
    )
    assert world.store.recent_jobs(5) == ()
    assert api.ask("POST", path, body(mine))[0] == 200


def test_the_installations_own_account_is_everybodys(api: Api) -> None:
    api.create("as_it_is")
    api.create("by_name", serviceAccount=ACCOUNT)


def test_a_bug_is_answered_in_googles_form_and_logged_whole(
    api: Api, world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger("shared"), "propagate", True)
    monkeypatch.setattr(world.store, "load", lambda *_, **__: 1 / 0)
    error = api.refused("GET", f"{JOBS}/digits_1")
    assert error == {"code": 500, "message": "Internal error encountered.", "status": "INTERNAL"}
    assert "ZeroDivisionError" in caplog.text


def test_a_callers_permissions_are_told_under_old_and_new_names(api: Api) -> None:
    def held(token: str, *asked: str) -> list[str]:
        said = api.done(
            "POST",
            f"{JOBS}/nobody:testIamPermissions",
            {"permissions": list(asked)},
            schema="GoogleIamV1__TestIamPermissionsResponse",
            token=token,
        )
        return list(said.get("permissions", []))

    assert held(VIEWER, "ml.jobs.get", "ml.jobs.cancel", GET, "storage.objects.get") == ["ml.jobs.get", GET]
    assert held(OWNER, *EQUIVALENT_PERMISSIONS) == list(EQUIVALENT_PERMISSIONS)
    assert held(NOBODY, *EQUIVALENT_PERMISSIONS) == []
    assert held(OWNER, "storage.objects.get") == []


def test_a_job_has_no_policy_of_its_own_and_none_can_be_set(api: Api) -> None:
    api.create()
    policy = api.done("GET", f"{JOBS}/digits_1:getIamPolicy", schema="GoogleIamV1__Policy")
    assert policy == {"etag": "ACAB"}
    assert api.done("POST", f"{JOBS}/digits_1:setIamPolicy", {"policy": policy}, schema="GoogleIamV1__Policy") == policy
    binding = {"role": "roles/viewer", "members": ["user:a@example.com"]}
    error = api.refused("POST", f"{JOBS}/digits_1:setIamPolicy", {"policy": {"bindings": [binding]}})
    assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")


def test_the_config_names_the_machines_account_and_locations_are_the_regions(api: Api) -> None:
    config = api.done("GET", "/v1/projects/my-project:getConfig", schema="GetConfigResponse")
    assert config == {
        "serviceAccount": ACCOUNT,
        "serviceAccountProject": "123456789012",
        "config": {"tpuServiceAccount": ACCOUNT},
    }
    listed = api.done("GET", "/v1/projects/my-project/locations", schema="ListLocationsResponse")["locations"]
    here = api.done("GET", "/v1/projects/my-project/locations/us-central1", schema="Location")
    assert here == {"name": "projects/my-project/locations/us-central1", "capabilities": [{"type": "TRAINING"}]}
    assert here in listed
    assert api.refused("GET", "/v1/projects/my-project/locations/atlantis")["code"] == 404


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_yes_is_remembered_for_a_minute_and_a_no_never() -> None:
    granted = {"t": {GET}}
    google, clock = MemoryAccess(granted), Clock()
    access = CachedAccess(google, clock)
    for _ in range(3):
        assert access.granted_permissions("t", [GET]) == {GET}
    assert google.calls == 1
    for _ in range(2):
        assert access.granted_permissions("t", [GET, LIST]) == {GET}
    granted["t"].add(LIST)
    assert access.granted_permissions("t", [GET, LIST]) == {GET, LIST}, "what was just given is seen at once"
    granted["t"].clear()
    assert access.granted_permissions("t", [GET]) == {GET}
    clock.now = GRANTED_S
    assert access.granted_permissions("t", [GET]) == frozenset(), "what was taken away, within the minute"


def test_whom_one_may_act_as_is_remembered_as_well_and_a_no_never() -> None:
    google, clock = MemoryAccess({"t": set()}, {"t": {"a@p"}}), Clock()
    access = CachedAccess(google, clock)
    assert [access.may_act_as("t", each) for each in ("a@p", "b@p", "a@p", "b@p")] == [True, False, True, False]
    assert google.calls == 3
    clock.now = GRANTED_S
    google.accounts = {}
    assert not access.may_act_as("t", "a@p")


def test_whose_token_it_is_and_the_projects_number_are_asked_once() -> None:
    google = MemoryAccess({"t": set(), "u": set()}, emails={"t": "anna@example.com"})
    access = CachedAccess(google, Clock())
    assert [access.email(each) for each in ("t", "u", "t", "u")] == ["anna@example.com", None, "anna@example.com", None]
    assert [access.project_number("t") for _ in range(3)] == [google.number] * 3
    assert google.calls == 3
    for nth in range(ENTRIES_MAX + 10):
        access.email(f"token-{nth}")
    assert len(access._emails) == ENTRIES_MAX
    assert "token-" not in repr(access._emails)


def test_what_is_remembered_is_of_one_token_and_bounded_and_not_the_token() -> None:
    access = CachedAccess(MemoryAccess({f"token-{nth}": {GET} for nth in range(ENTRIES_MAX + 10)}), Clock())
    assert access.granted_permissions("token-0", [GET]) == {GET}
    with pytest.raises(UnknownTokenError):
        access.granted_permissions("another", [GET])
    for nth in range(ENTRIES_MAX + 10):
        access.granted_permissions(f"token-{nth}", [GET])
    assert len(access._granted) == ENTRIES_MAX
    assert "token-" not in repr(access._granted)


def test_the_doors_of_events_and_of_the_api_are_apart(api: Api) -> None:
    """A Pub/Sub push has no token of a person: it does not get in here by accident."""
    assert push.decode(b'{"message": {}}').data == b""
    assert api.refused("POST", "/", {"message": {}}, token=None)["code"] == 404
