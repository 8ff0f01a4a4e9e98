"""Security of the console's web server: headers, sign-in, hostile addresses, forged requests."""

from __future__ import annotations

import re
from http import HTTPStatus
from urllib.parse import urlencode

import pytest

from tests.support.console_site import ORIGIN, Site
from tests.unit.console.pages import failed_job

PATHS = (
    "/jobs",
    "/jobs/digits_1",
    "/jobs/digits_1/logs",
    "/jobs/digits_1/replicas/worker-0",
    "/compare?job=digits_1",
    "/installation",
    "/help",
    "/reasons",
)
ADDRESSES = (
    *PATHS,
    "/jobs/digits_1/logs.txt",
    "/jobs/digits_1/resources",
    "/jobs.json",
    f"/submissions/digits_1/{'k' * 16}",
)
PARAMETERS = (
    "replica",
    "all",
    "replicas",
    "table",
    "gaps",
    "from",
    "to",
    "brush",
    "sort",
    "order",
    "at",
    "hours",
    "job",
    "task",
    "severity",
    "text",
    "before",
    "around",
    "follow",
    "gap",
    "state",
    "user",
    "label",
    "q",
    "size",
    "after",
)
"""Names of parameters of all pages."""
HOSTILE = (
    '"><script>alert(1)</script>',
    "javascript:alert(1)",
    "0001-01-01T00:00:00+14:00",
    "0001-01-01T00:00:00+14:00/digits_1",
    "9" * 20,
    "9" * 5_000,
    "\0%0d%0a",
)


@pytest.mark.parametrize(
    "path", [*PATHS, "/jobs/digits_1/cancel", "/jobs.json", "/jobs/digits_1.json"]
)
def test_page_of_a_running_job_has_all_security_headers(site: Site, path: str) -> None:
    site.world.start_running()
    response = site.get(path)
    assert response.status_code == 200
    assert response.headers["Content-Security-Policy"].startswith(
        "default-src 'none'; script-src 'self'"
    )
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Referrer-Policy"] == "same-origin"
    assert response.headers["Cache-Control"] == "private, no-cache"


def test_every_answer_has_the_security_headers(site: Site) -> None:
    """Also answers to other sites' requests, errors, redirections, files and static files."""
    site.world.start_running()
    anonymous = site.app.test_client()
    (asset,) = re.findall(r'href="(/assets/console[^"]+)"', site.text("/jobs"))
    answers = [
        *(site.get(path) for path in (*ADDRESSES, "/", "/nowhere", "/compare", asset)),
        site.get("/jobs", Host="evil.example"),
        site.get("/jobs", If_None_Match=site.get("/jobs").headers["ETag"]),
        anonymous.get("/jobs", base_url=ORIGIN),
        anonymous.get("/?token=x", base_url=ORIGIN),
        site.send("/jobs/digits_1/cancel", {}),
        site.client.options("/jobs", base_url=ORIGIN),
    ]
    assert {answer.status_code for answer in answers} == {200, 302, 304, 400, 401, 403, 404}
    for answer in answers:
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.headers["Cache-Control"].startswith("private, ")
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("path", PATHS)
def test_page_has_neither_inline_styles_nor_scripts_nor_other_origins(
    site: Site, path: str
) -> None:
    site.world.start_running()
    page = site.text(path)
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script>", page)
    assert not re.findall(r'(?:src|<link[^>]*href)="https?:', page)


def test_page_without_a_session_is_401(site: Site) -> None:
    response = site.app.test_client().get("/jobs", base_url=ORIGIN)
    assert response.status_code == 401
    assert "trainmaster console" in response.text


def test_token_works_once_and_disappears_from_the_address(site: Site) -> None:
    fresh = Site()
    first = fresh.client.get(f"/?token={fresh.sign_in.token}", base_url=ORIGIN)
    assert (first.status_code, first.headers["Location"]) == (303, "/jobs")
    assert "HttpOnly" in first.headers["Set-Cookie"]
    assert "SameSite=Lax" in first.headers["Set-Cookie"]
    assert fresh.sign_in.token not in first.headers["Set-Cookie"]
    second = fresh.app.test_client().get(f"/?token={fresh.sign_in.token}", base_url=ORIGIN)
    assert second.status_code == 401


def test_wrong_token_is_401_and_leaves_the_right_one_valid() -> None:
    fresh = Site()
    assert fresh.client.get("/?token=wrong", base_url=ORIGIN).status_code == 401
    fresh.open()


def test_foreign_host_is_403_even_with_a_session(site: Site) -> None:
    site.world.start_running()
    cookie = site.client.get_cookie(site.sign_in.cookie, domain="127.0.0.1")
    assert cookie is not None
    response = site.app.test_client().get(
        "/jobs",
        base_url="http://attacker.example:8080",
        headers={"Cookie": f"{cookie.key}={cookie.value}"},
    )
    assert response.status_code == 403
    assert site.app.test_client().get("/jobs", base_url="http://localhost:8080").status_code == 401


@pytest.mark.parametrize("job_id", ["..", "__x__", "a.b", "x" * 2000, f"x-trial-{'9' * 2000}"])
def test_invalid_job_id_is_never_looked_up(
    site: Site, job_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site.world.store, "load", lambda *_: pytest.fail("looked up"))
    for path in (f"/jobs/{job_id}/logs", f"/jobs/{job_id}/cancel"):
        assert site.get(path).status_code in (302, 308, 404)


def test_text_of_programs_is_never_markup(site: Site) -> None:
    failed_job(site)
    assert "<b>no</b>" not in site.text("/jobs/digits_1")
    attack = "<script>alert(1)</script> \x1b[31mred \u202eesrever"
    site.entries = [
        {
            "timestamp": "2026-11-21T03:00:05.000000001Z",
            "insertId": "a",
            "severity": "INFO",
            "textPayload": attack,
        }
    ]
    page = site.text("/jobs/digits_1/logs")
    assert "<script>alert" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt; red esrever" in page


@pytest.mark.parametrize("path", ADDRESSES)
@pytest.mark.parametrize(
    "turn",
    [
        0,
        *(
            pytest.param(
                turn,
                marks=pytest.mark.heavy(
                    fact="a hostile address of the console is harmless",
                    quick="the same test with one of seven values for each parameter",
                ),
            )
            for turn in range(1, len(HOSTILE))
        ),
    ],
)
def test_parameter_of_an_address_is_never_markup_and_never_an_internal_error(
    site: Site, path: str, turn: int
) -> None:
    """The attack: a link to the console that somebody else has made.

    In each turn, a parameter gets another value.
    """
    site.world.start_running()
    for number, name in enumerate(PARAMETERS, start=turn + ADDRESSES.index(path)):
        value = HOSTILE[number % len(HOSTILE)]
        response = site.get(f"{path}{'&' if '?' in path else '?'}{urlencode({name: value})}")
        assert response.status_code in (
            HTTPStatus.OK,
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.NOT_FOUND,
        ), name
        assert "<script>alert" not in response.text or response.mimetype != "text/html", name
        assert not re.search(r"(href|action|src)=.?javascript:", response.text), name


@pytest.mark.parametrize(
    ("token", "headers"),
    [
        ("", {}),
        ("0" * 64, {}),
        (None, {"Origin": "http://attacker.example"}),
        (None, {"Origin": "null"}),
        (None, {"Sec_Fetch_Site": "cross-site"}),
        (None, {"Sec_Fetch_Site": "same-site"}),
    ],
)
def test_forged_cancellation_is_403_and_changes_nothing(
    site: Site, token: str | None, headers: dict[str, str]
) -> None:
    site.world.start_running()
    before = site.world.ledger
    assert site.post("/jobs/digits_1/cancel", token, **headers).status_code == 403
    assert site.world.ledger == before


def test_static_files_are_immutable_and_nothing_else_is_served(site: Site) -> None:
    page = site.text("/jobs")
    for address in re.findall(r'(?:href|src)="(/assets/[^"]+)"', page):
        response = site.get(address)
        assert response.status_code == 200
        assert "immutable" in response.headers["Cache-Control"]
    for name in ("vendor/VENDOR.toml", "vendor", "vendor/no.css", "no.toml"):
        assert site.get(f"/assets/{name}").status_code == 404
    assert site.get("/assets/../web.py").status_code in (400, 404)
    assert site.get("/assets/%2e%2e/web.py").status_code in (400, 404)
