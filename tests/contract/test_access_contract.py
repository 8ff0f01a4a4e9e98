"""One suite for Access, on the adapter in memory and on Cloud Resource Manager's emulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from emulators.services import iam
from shared.errors import TemporaryError
from shared.gcp.project_access import ProjectAccess
from shared.memory.access import MemoryAccess
from shared.ports import Access, UnknownTokenError
from tests.support.serving import serving

ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
CREATE, GET = "aiplatform.customJobs.create", "aiplatform.customJobs.get"


@pytest.fixture(params=["memory", "resource manager"])
def access(request: pytest.FixtureRequest) -> Iterator[Access]:
    if request.param == "memory":
        tokens: dict[str, set[str]] = {iam.OWNER: {CREATE, GET}, iam.VIEWER: {GET}, iam.UNPRIVILEGED: set()}
        yield MemoryAccess(tokens, {iam.OWNER: {ACCOUNT}}, emails=iam.EMAILS)
        return
    with serving(iam.listen(0, "my-project")) as endpoint:
        yield ProjectAccess("my-project", endpoint, endpoint, endpoint)


def test_those_of_the_asked_that_the_token_has_and_no_others(access: Access) -> None:
    assert access.granted_permissions(iam.OWNER, [CREATE, GET]) == {CREATE, GET}
    assert access.granted_permissions(iam.VIEWER, [CREATE, GET]) == {GET}
    assert access.granted_permissions(iam.OWNER, [GET]) == {GET}
    assert access.granted_permissions(iam.UNPRIVILEGED, [CREATE, GET]) == frozenset()


def test_whom_one_may_act_as(access: Access) -> None:
    assert access.may_act_as(iam.OWNER, ACCOUNT)
    assert not access.may_act_as(iam.VIEWER, ACCOUNT)
    assert not access.may_act_as(iam.UNPRIVILEGED, ACCOUNT)


def test_the_projects_number_is_told_to_who_may_see_the_project(access: Access) -> None:
    assert access.project_number(iam.OWNER) == access.project_number(iam.VIEWER) == iam.PROJECT_NUMBER
    with pytest.raises(UnknownTokenError):
        access.project_number("ya29.expired")


def test_whose_token_it_is_as_far_as_its_scopes_tell(access: Access) -> None:
    assert access.email(iam.OWNER) == "owner@example.com"
    assert access.email(iam.UNPRIVILEGED) is None
    assert access.email("ya29.expired") is None


def test_a_token_that_nobody_has_is_unknown(access: Access) -> None:
    with pytest.raises(UnknownTokenError):
        access.granted_permissions("ya29.expired", [GET])
    with pytest.raises(UnknownTokenError):
        access.may_act_as("ya29.expired", ACCOUNT)


@pytest.fixture
def google() -> Iterator[tuple[str, list[tuple[int, object]]]]:
    """An endpoint that answers what the test puts into the list, and keeps what it was asked."""
    answers: list[tuple[int, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status, body = answers.pop(0)
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as endpoint:
        yield endpoint, answers


@pytest.mark.parametrize("status", [429, 500, 503, 400, 404])
def test_trouble_is_no_answer(google: tuple[str, list[tuple[int, object]]], status: int) -> None:
    endpoint, answers = google
    answers.append((status, {"error": {"code": status}}))
    with pytest.raises(TemporaryError, match=str(status)):
        ProjectAccess("my-project", endpoint, endpoint).granted_permissions("t", [GET])


def test_a_resource_manager_that_is_switched_off_is_trouble_and_a_forbidden_project_is_a_no(
    google: tuple[str, list[tuple[int, object]]],
) -> None:
    endpoint, answers = google
    reason = {"error": {"code": 403, "details": [{"reason": "SERVICE_DISABLED"}]}}
    answers += [(403, reason), (403, {"error": {"code": 403, "status": "PERMISSION_DENIED"}})]
    access = ProjectAccess("my-project", endpoint, endpoint)
    with pytest.raises(TemporaryError, match="SERVICE_DISABLED"):
        access.granted_permissions("t", [GET])
    assert access.granted_permissions("t", [GET]) == frozenset()


def test_an_account_that_there_is_not_is_nobodys(google: tuple[str, list[tuple[int, object]]]) -> None:
    endpoint, answers = google
    answers += [(404, {"error": {"code": 404}}), (503, {})]
    access = ProjectAccess("my-project", endpoint, endpoint)
    assert not access.may_act_as("t", ACCOUNT)
    with pytest.raises(TemporaryError):
        access.may_act_as("t", ACCOUNT)


def test_google_may_not_grant_what_was_not_asked(google: tuple[str, list[tuple[int, object]]]) -> None:
    endpoint, answers = google
    answers.append((200, {"permissions": [GET, CREATE]}))
    assert ProjectAccess("my-project", endpoint, endpoint).granted_permissions("t", [GET]) == {GET}


def test_who_does_not_answer_is_asked_again_later() -> None:
    with pytest.raises(TemporaryError):
        ProjectAccess("my-project", "http://127.0.0.1:1", "http://127.0.0.1:1").granted_permissions("t", [GET])


@pytest.mark.parametrize(
    "person",
    [
        {"sub": "1"},
        {"sub": "1", "email": "a@example.com"},
        {"sub": "1", "email": "a@example.com", "email_verified": False},
        {"sub": "1", "email": "", "email_verified": True},
    ],
)
def test_an_email_that_google_has_not_verified_is_nobodys(
    google: tuple[str, list[tuple[int, object]]], person: object
) -> None:
    endpoint, answers = google
    answers.append((200, person))
    assert ProjectAccess("my-project", endpoint, endpoint, endpoint).email("t") is None


@pytest.mark.parametrize(("status", "number"), [(403, None), (404, None), (503, None), (200, None)])
def test_a_number_that_is_not_told_is_trouble(
    google: tuple[str, list[tuple[int, object]]], status: int, number: object
) -> None:
    endpoint, answers = google
    answers.append((status, {"projectNumber": number}))
    with pytest.raises(TemporaryError, match=str(status)):
        ProjectAccess("my-project", endpoint, endpoint).project_number("t")


def test_without_an_endpoint_nobody_is_asked_for_and_trouble_is_no_name(
    google: tuple[str, list[tuple[int, object]]],
) -> None:
    endpoint, answers = google
    assert ProjectAccess("my-project", endpoint, endpoint).email("t") is None
    answers.append((500, {}))
    with pytest.raises(TemporaryError):
        ProjectAccess("my-project", endpoint, endpoint, endpoint).email("t")
