"""One suite for Access, on the adapter in memory and on Cloud Resource Manager's emulator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from urllib.parse import unquote

import pytest
from google.auth import jwt

from tests.support.serving import JsonHandler, serving
from trainmaster.errors import TemporaryError
from trainmaster.gcp.project_access import ProjectAccess
from trainmaster.ports import Access, CallersProjectError, UnknownTokenError
from trainmaster_emulators.machines.vm_tokens import TokenIssuer
from trainmaster_emulators.services import iam
from trainmaster_local.memory.access import MemoryAccess

ACCOUNT = "trainer@my-project.iam.gserviceaccount.com"
NOWHERE = "http://127.0.0.1:1"
"""An address that nothing listens at."""
CREATE, GET = "aiplatform.customJobs.create", "aiplatform.customJobs.get"


@pytest.fixture(params=["memory", "resource manager"])
def access(request: pytest.FixtureRequest) -> Iterator[Access]:
    if request.param == "memory":
        tokens: dict[str, set[str]] = {
            iam.OWNER: {CREATE, GET},
            iam.VIEWER: {GET},
            iam.UNPRIVILEGED: set(),
            iam.READ_ONLY: {GET},
        }
        yield MemoryAccess(
            tokens, {iam.OWNER: {ACCOUNT}}, emails=iam.EMAILS, read_only={iam.READ_ONLY}
        )
        return
    with serving(iam.listen(0, "my-project")) as endpoint:
        yield ProjectAccess("my-project", endpoint, endpoint, endpoint, endpoint)


def test_granted_permissions_are_those_requested_that_the_caller_has(access: Access) -> None:
    assert access.granted_permissions(iam.OWNER, [CREATE, GET]) == {CREATE, GET}
    assert access.granted_permissions(iam.VIEWER, [CREATE, GET]) == {GET}
    assert access.granted_permissions(iam.OWNER, [GET]) == {GET}
    assert access.granted_permissions(iam.UNPRIVILEGED, [CREATE, GET]) == frozenset()


def test_callers_of_the_api_have_the_permissions_of_their_grant_on_its_account(
    access: Access,
) -> None:
    assert access.api_permissions(iam.OWNER, [CREATE, GET]) == {CREATE, GET}
    assert access.api_permissions(iam.VIEWER, [CREATE, GET]) == {GET}
    assert access.api_permissions(iam.UNPRIVILEGED, [CREATE, GET]) == frozenset()
    with pytest.raises(UnknownTokenError):
        access.api_permissions("ya29.expired", [GET])


def test_acting_as_an_account_needs_permission_on_that_account(access: Access) -> None:
    assert access.may_act_as(iam.OWNER, ACCOUNT)
    assert not access.may_act_as(iam.VIEWER, ACCOUNT)
    assert not access.may_act_as(iam.UNPRIVILEGED, ACCOUNT)


def test_project_number_is_returned_to_callers_who_may_see_the_project(access: Access) -> None:
    assert (
        access.project_number(iam.OWNER) == access.project_number(iam.VIEWER) == iam.PROJECT_NUMBER
    )
    with pytest.raises(UnknownTokenError):
        access.project_number("ya29.expired")


def test_email_is_returned_if_the_token_has_the_scope(access: Access) -> None:
    assert access.email(iam.OWNER) == "owner@example.com"
    assert access.email(iam.UNPRIVILEGED) is None
    assert access.email("ya29.expired") is None


def test_full_scope_is_a_property_of_the_token_and_not_of_the_caller(access: Access) -> None:
    assert access.has_full_scope(iam.OWNER)
    assert access.has_full_scope(iam.UNPRIVILEGED)
    assert not access.has_full_scope(iam.READ_ONLY)
    assert not access.has_full_scope("ya29.expired")


def test_permissions_on_another_project_are_that_projects(access: Access) -> None:
    assert access.granted_permissions(iam.OWNER, [GET], "another-project") == frozenset()


@pytest.mark.parametrize(
    ("claims", "is_full"),
    [
        ({"scope": "https://www.googleapis.com/auth/cloud-platform"}, True),
        ({"scope": "https://www.googleapis.com/auth/cloud-platform.read-only email"}, False),
        ({"scope": ""}, False),
        ({"aud": "https://cloudresourcemanager.googleapis.com/"}, True),
    ],
    ids=str,
)
def test_token_that_a_service_account_signed_carries_its_scopes(
    claims: dict[str, str], *, is_full: bool
) -> None:
    """Such a token is not known to tokeninfo; its signature is verified by the call that asks for
    permissions.
    """
    token = jwt.encode(TokenIssuer()._signer, {"iss": ACCOUNT, "sub": ACCOUNT, **claims}).decode()
    access = ProjectAccess(
        "my-project",
        NOWHERE,
        NOWHERE,
        people_endpoint="",
        tokens_endpoint=NOWHERE,
    )
    assert access.has_full_scope(token) is is_full


def test_failed_look_up_of_scopes_is_a_temporary_error(
    google: ScriptedGoogle,
) -> None:
    google.answers += [(503, {}), (429, {}), (400, {"error": "invalid_token"})]
    access = ProjectAccess(
        "my-project",
        google.endpoint,
        google.endpoint,
        people_endpoint="",
        tokens_endpoint=google.endpoint,
    )
    for _ in range(2):
        with pytest.raises(TemporaryError):
            access.has_full_scope("ya29.t")
    assert not access.has_full_scope("ya29.t")


def test_invalid_token_raises_unknown_token_error(access: Access) -> None:
    with pytest.raises(UnknownTokenError):
        access.granted_permissions("ya29.expired", [GET])
    with pytest.raises(UnknownTokenError):
        access.may_act_as("ya29.expired", ACCOUNT)


@dataclass
class ScriptedGoogle:
    """Google's services at one address. They give the answers one after another."""

    endpoint: str
    answers: list[tuple[int, object]]
    """Status and JSON body of each."""

    def access(self) -> ProjectAccess:
        return an_access(self.endpoint)


def an_access(endpoint: str) -> ProjectAccess:
    """Return the adapter, with all of Google's services at one address but the tokens' own."""
    return ProjectAccess(
        "my-project", endpoint, accounts_endpoint=endpoint, people_endpoint=endpoint
    )


@pytest.fixture
def google() -> Iterator[ScriptedGoogle]:
    """Google at an address of its own, without answers yet."""
    answers: list[tuple[int, object]] = []

    class Handler(JsonHandler):
        def do_POST(self) -> None:
            self.answer(*answers.pop(0))

        do_GET = do_POST

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as endpoint:
        yield ScriptedGoogle(endpoint, answers)


@pytest.mark.parametrize("status", [429, 500, 503, 400, 404])
def test_error_response_of_iam_is_a_temporary_error(google: ScriptedGoogle, status: int) -> None:
    google.answers.append((status, {"error": {"code": status}}))
    with pytest.raises(TemporaryError, match=str(status)):
        google.access().granted_permissions("t", [GET])


def test_forbidden_project_grants_nothing(google: ScriptedGoogle) -> None:
    google.answers.append((403, {"error": {"code": 403, "status": "PERMISSION_DENIED"}}))
    assert google.access().granted_permissions("t", [GET]) == frozenset()


@dataclass
class ForeignAccount:
    """Google's answers to the token of a service account whose own project has not enabled the API.

    Source: "System parameters": the header X-Goog-User-Project names the project whose quota and
    APIs count. The caller needs serviceusage.services.use in it.
    """

    may_use_project: bool
    quota_projects: list[str | None] = field(default_factory=list)

    def handler(self) -> type[JsonHandler]:
        account = self

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                project = self.headers.get("X-Goog-User-Project")
                account.quota_projects.append(project)
                if project is None:
                    self.refuse("SERVICE_DISABLED")
                elif not account.may_use_project:
                    self.refuse("USER_PROJECT_DENIED")
                else:
                    self.answer(200, {"permissions": [GET]})

            do_GET = do_POST

            def refuse(self, reason: str) -> None:
                self.answer(403, {"error": {"code": 403, "details": [{"reason": reason}]}})

        return Handler


def test_api_disabled_in_callers_project_is_called_on_behalf_of_this_project() -> None:
    account = ForeignAccount(may_use_project=True)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), account.handler())) as endpoint:
        assert an_access(endpoint).granted_permissions("t", [GET]) == {GET}
    assert account.quota_projects == [None, "my-project"]


def test_caller_who_may_not_use_this_project_gets_an_error_with_the_remedy() -> None:
    account = ForeignAccount(may_use_project=False)
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), account.handler())) as endpoint:
        access = an_access(endpoint)
        for call in (
            lambda: access.granted_permissions("t", [GET]),
            lambda: access.may_act_as("t", ACCOUNT),
            lambda: access.project_number("t"),
        ):
            with pytest.raises(
                CallersProjectError, match=r"gcloud services enable .*serviceUsageConsumer"
            ):
                call()
        assert access.email("t") is None


@dataclass
class Policies:
    """An IAM in which one caller has permissions on some resources."""

    granted: dict[str, list[str]]
    """Path of a resource → the permissions on it."""

    def handler(self) -> type[JsonHandler]:
        policies = self.granted

        class Handler(JsonHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                has = policies.get(unquote(self.path).removesuffix(":testIamPermissions"), [])
                granted = [name for name in asked["permissions"] if name in has]
                self.answer(200, {"permissions": granted})

        return Handler


CALLERS = "/v1/projects/-/serviceAccounts/trainmaster-callers@my-project.iam.gserviceaccount.com"
ON_PROJECT = {"/v1/projects/my-project": [CREATE, GET, "ml.jobs.create"]}
OTHERS = CALLERS.replace("trainmaster-callers", "tmother-callers")


@pytest.mark.parametrize(
    ("granted", "expected"),
    [
        pytest.param(ON_PROJECT, set(), id="roles/aiplatform.user on the project"),
        pytest.param({CALLERS: [CREATE, GET]}, set(), id="Vertex AI's permissions on the account"),
        pytest.param(
            {CALLERS.replace("my-project", "other"): ["iam.serviceAccounts.actAs"]},
            set(),
            id="account of another project",
        ),
        pytest.param(
            {OTHERS: ["iam.serviceAccounts.actAs", "iam.serviceAccounts.get"]},
            set(),
            id="account of another installation",
        ),
        pytest.param({CALLERS: ["iam.serviceAccounts.get"]}, {GET}, id="viewer"),
        pytest.param(
            {CALLERS: ["iam.serviceAccounts.actAs", "iam.serviceAccounts.get"]},
            {CREATE, GET},
            id="user",
        ),
        pytest.param(
            {**ON_PROJECT, CALLERS: ["iam.serviceAccounts.get"]},
            {GET},
            id="viewer who may use Vertex AI",
        ),
    ],
)
def test_only_the_list_of_callers_grants_calls_of_the_api(
    granted: dict[str, list[str]], expected: set[str]
) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Policies(granted).handler())) as endpoint:
        access = an_access(endpoint)
        assert access.api_permissions("t", [CREATE, GET]) == expected


def test_no_caller_may_act_as_a_missing_account(
    google: ScriptedGoogle,
) -> None:
    google.answers += [(404, {"error": {"code": 404}}), (503, {})]
    access = google.access()
    assert not access.may_act_as("t", ACCOUNT)
    with pytest.raises(TemporaryError):
        access.may_act_as("t", ACCOUNT)


def test_permission_that_was_not_requested_is_never_granted(
    google: ScriptedGoogle,
) -> None:
    google.answers.append((200, {"permissions": [GET, CREATE]}))
    assert google.access().granted_permissions("t", [GET]) == {GET}


def test_unreachable_iam_is_a_temporary_error() -> None:
    with pytest.raises(TemporaryError):
        an_access(NOWHERE).granted_permissions("t", [GET])


@pytest.mark.parametrize(
    "person",
    [
        {"sub": "1"},
        {"sub": "1", "email": "a@example.com"},
        {"sub": "1", "email": "a@example.com", "email_verified": False},
        {"sub": "1", "email": "", "email_verified": True},
    ],
)
def test_unverified_email_is_not_returned(google: ScriptedGoogle, person: object) -> None:
    google.answers.append((200, person))
    assert google.access().email("t") is None


def test_caller_who_may_not_see_the_project_gets_no_number(
    google: ScriptedGoogle,
) -> None:
    google.answers.append((403, {"error": {"code": 403}}))
    assert google.access().project_number("t") == ""


@pytest.mark.parametrize("status", [404, 503, 200])
def test_missing_project_number_is_a_temporary_error(google: ScriptedGoogle, status: int) -> None:
    google.answers.append((status, {}))
    with pytest.raises(TemporaryError, match=str(status)):
        google.access().project_number("t")


def test_email_is_none_without_endpoint_and_a_temporary_error_on_failure(
    google: ScriptedGoogle,
) -> None:
    without_people = ProjectAccess("my-project", google.endpoint, google.endpoint)
    assert without_people.email("t") is None
    google.answers.append((500, {}))
    with pytest.raises(TemporaryError):
        google.access().email("t")
