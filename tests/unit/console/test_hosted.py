"""The console behind Identity-Aware Proxy (IAP): admitted users, the recorded names, and refused
requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.support.console_site import Site
from tests.support.serving import serving
from tests.unit.console.pages import between
from trainmaster.console.iap_sign_in import ASSERTION, COOKIE, IapSignIn
from trainmaster.console.web import create_app
from trainmaster.core.model.job import JobState
from trainmaster.gcp.iap_assertions import IapAssertions
from trainmaster_emulators.services.iap_issuer import IapIssuer

HOST = "trainmaster-console-abc-uc.a.run.app"
ORIGIN = f"https://{HOST}"
AUDIENCE = "/projects/17/locations/us-central1/services/trainmaster-console-operator"
ANNA = "anna@example.com"


@dataclass
class Hosted:
    """A hosted console of a world, and browsers that come through IAP."""

    site: Site
    sign_in: IapSignIn
    issuer: IapIssuer
    client: FlaskClient = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.another_instance()

    def another_instance(self) -> FlaskClient:
        """Return a client of another instance of the service, without cookies."""
        return create_app(self.site.console(), self.sign_in).test_client()

    def assertion(self, email: str = ANNA, audience: str = AUDIENCE, **claims: Any) -> str:
        return self.issuer.assertion(email, audience, datetime.now(UTC), **claims)

    def get(self, path: str, assertion: str | None = None) -> TestResponse:
        headers = {ASSERTION: self.assertion() if assertion is None else assertion}
        return self.client.get(path, base_url=ORIGIN, headers=headers)

    def form_token(self, path: str) -> str:
        return between(self.get(path).text, 'name="token" value="', '"')

    def post(self, path: str, token: str, **headers: str) -> TestResponse:
        return self.post_from(self.client, path, token, **headers)

    def post_from(self, client: FlaskClient, path: str, token: str, **headers: str) -> TestResponse:
        sent = {
            "Origin": ORIGIN,
            "Sec-Fetch-Site": "same-origin",
            ASSERTION: self.assertion(),
            **headers,
        }
        return client.post(path, base_url=ORIGIN, data={"token": token}, headers=sent)


@pytest.fixture
def issuer() -> IapIssuer:
    return IapIssuer()


@pytest.fixture
def hosted(issuer: IapIssuer) -> Iterator[Hosted]:
    site = Site()
    site.world.start_running()
    with serving(issuer.listen()) as keys:
        yield Hosted(site, IapSignIn(IapAssertions(AUDIENCE, keys).user), issuer)


def test_user_with_an_assertion_sees_the_pages_under_their_name(hosted: Hosted) -> None:
    page = hosted.get("/jobs/digits_1")
    assert page.status_code == 200
    assert ANNA in page.text
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'")


def refused_assertions(issuer: IapIssuer) -> dict[str, str]:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    valid = issuer.assertion(ANNA, AUDIENCE, now)
    head, payload, _ = valid.split(".")
    other_payload = issuer.assertion("boss@example.com", AUDIENCE, now).split(".")[1]
    return {
        "missing": "",
        "no token": "anna@example.com",
        "another service's": issuer.assertion(ANNA, AUDIENCE.replace("-operator", ""), now),
        "another project's": issuer.assertion(ANNA, AUDIENCE.replace("/17/", "/18/"), now),
        "expired": issuer.assertion(ANNA, AUDIENCE, now - hour),
        "from the future": issuer.assertion(ANNA, AUDIENCE, now + hour),
        "another issuer's": issuer.assertion(
            ANNA, AUDIENCE, now, iss="https://accounts.google.com"
        ),
        "without an e-mail address": issuer.assertion("", AUDIENCE, now),
        "without a subject": issuer.assertion(ANNA, AUDIENCE, now, sub=None),
        "signed with another key": IapIssuer().assertion(ANNA, AUDIENCE, now),
        "changed after it was signed": f"{head}.{other_payload}.{valid.split('.')[2]}",
        "unsigned": f"eyJhbGciOiJub25lIn0.{payload}.",
        "without its signature": f"{head}.{payload}.",
    }


@pytest.mark.parametrize("kind", refused_assertions(IapIssuer()))
def test_request_without_a_valid_assertion_is_401_for_pages_and_actions(
    hosted: Hosted, kind: str
) -> None:
    assertion = refused_assertions(hosted.issuer)[kind]
    before = hosted.site.world.ledger
    response = hosted.get("/jobs/digits_1", assertion)
    assert response.status_code == 401
    assert "digits" not in response.text
    token = hosted.form_token("/jobs/digits_1/cancel")
    # 503: the key is unknown, and Google's keys were fetched less than a minute ago.
    assert hosted.post("/jobs/digits_1/cancel", token, **{ASSERTION: assertion}).status_code in (
        401,
        503,
    )
    assert hosted.site.world.ledger == before


def test_header_with_the_address_alone_is_not_accepted(hosted: Hosted) -> None:
    headers = {"X-Goog-Authenticated-User-Email": f"accounts.google.com:{ANNA}"}
    assert hosted.client.get("/jobs", base_url=ORIGIN, headers=headers).status_code == 401


def test_assertion_needs_no_new_keys_for_every_request(
    hosted: Hosted, issuer: IapIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[str] = []
    keys = issuer.public_keys()

    def fetch() -> dict[str, str]:
        fetched.extend(keys)
        return keys

    monkeypatch.setattr(issuer, "public_keys", fetch)
    for _ in range(5):
        assert hosted.get("/jobs").status_code == 200
    assert len(fetched) == 1


def test_cancellation_is_recorded_with_the_address_of_the_assertion(hosted: Hosted) -> None:
    token = hosted.form_token("/jobs/digits_1/cancel")
    assert hosted.post("/jobs/digits_1/cancel", token).status_code == 303
    assert hosted.site.world.state == JobState.CANCELLED
    assert ANNA in repr(hosted.site.world.ledger[-1].event)


def test_form_of_one_instance_is_accepted_by_another_one(hosted: Hosted) -> None:
    token = hosted.form_token("/jobs/digits_1/cancel")
    cookie = hosted.client.get_cookie(COOKIE, domain=HOST)
    assert cookie is not None
    other = hosted.another_instance()
    other.set_cookie(COOKIE, cookie.value, domain=HOST, secure=True)
    assert hosted.post_from(other, "/jobs/digits_1/cancel", token).status_code == 303


def test_form_of_another_user_or_session_is_403(hosted: Hosted) -> None:
    token = hosted.form_token("/jobs/digits_1/cancel")
    by_boris = {ASSERTION: hosted.assertion("boris@example.com")}
    assert hosted.post("/jobs/digits_1/cancel", token, **by_boris).status_code == 403
    assert (
        hosted.post_from(hosted.another_instance(), "/jobs/digits_1/cancel", token).status_code
        == 403
    )
    assert hosted.site.world.state == JobState.RUNNING


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://attacker.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
def test_forged_cancellation_is_403(hosted: Hosted, headers: dict[str, str]) -> None:
    token = hosted.form_token("/jobs/digits_1/cancel")
    assert hosted.post("/jobs/digits_1/cancel", token, **headers).status_code == 403
    assert hosted.site.world.state == JobState.RUNNING


def test_session_cookie_is_set_once_and_out_of_reach_of_scripts(hosted: Hosted) -> None:
    first = hosted.get("/jobs").headers["Set-Cookie"]
    assert first.startswith(f"{COOKIE}=")
    assert {"Secure", "HttpOnly", "Path=/", "SameSite=Lax"} <= set(first.split("; "))
    assert "Set-Cookie" not in hosted.get("/jobs").headers


def test_service_without_an_audience_does_not_start() -> None:
    with pytest.raises(ValueError, match="audience is empty"):
        IapAssertions(audience="", keys_url="http://127.0.0.1:9")
