"""Quotas of requests: which requests count, and when more are allowed."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from tests.integration.api.client import (
    CUSTOM_JOBS,
    JOBS,
    UNPRIVILEGED,
    VIEWER,
    Api,
    an_app,
    quota_error,
)
from tests.integration.api.test_custom_jobs import BODY
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster.api.quotas import MINUTE_S, Bucket, Shares
from trainmaster.wiring import api as wiring
from trainmaster_local.memory.access import MemoryAccess

UNKNOWN = "ya29.an-expired-access-token"


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_bucket_allows_its_number_at_once_and_more_as_time_passes(clock: Clock) -> None:
    """`take` returns the seconds until a request is allowed: 0, and it is counted."""
    bucket = Bucket(300, clock)
    assert [bucket.take() for _ in range(300)] == [0] * 300
    assert bucket.take() == 1
    clock.now += 0.2
    assert [bucket.take(), bucket.take()] == [0, 1], "one every fifth of a second"
    clock.now += MINUTE_S
    assert [bucket.take() for _ in range(301)] == [0] * 300 + [1]


def test_client_within_the_quota_is_never_refused(clock: Clock) -> None:
    bucket = Bucket(6, clock)
    for _ in range(20):
        assert [bucket.take() for _ in range(6)] == [0] * 6
        clock.now += MINUTE_S
    for _ in range(100):
        assert bucket.take() == 0
        clock.now += 10


def test_refused_request_is_not_counted_and_gets_its_wait_time(clock: Clock) -> None:
    bucket = Bucket(2, clock)
    assert [bucket.take() for _ in range(6)] == [0, 0, 30, 30, 30, 30]
    clock.now += 29
    assert bucket.take() == 1
    clock.now += 1
    assert bucket.take() == 0


def test_bucket_without_limit_allows_everything(clock: Clock) -> None:
    assert {Bucket(0, clock).take() for _ in range(10_000)} == {0}


def test_threads_share_the_bucket(clock: Clock) -> None:
    bucket = Bucket(500, clock)
    got: Counter[bool] = Counter()

    def ask() -> None:
        mine = Counter(bucket.take() == 0 for _ in range(300))
        with lock:
            got.update(mine)

    lock = threading.Lock()
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == {True: 500, False: 700}


@pytest.fixture
def api(world: World, access: MemoryAccess, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Api:
    """Return an API with a quota of three requests."""
    app = an_app(world, access, monkeypatch, Bucket(3, clock))
    return Api(world, access, app.test_client())


def test_requests_over_quota_are_refused_until_time_has_passed(api: Api, clock: Clock) -> None:
    for _ in range(3):
        api.list()
    error = api.send_refused("GET", f"{JOBS}/digits_1")
    sentence = "The request exceeds the allowed maximum of 3 requests per minute."
    assert error == quota_error(sentence, limit=3, retry_s=20)
    answer = api.http.get(JOBS, headers={"Authorization": f"Bearer {VIEWER}"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "20")
    clock.now += 20
    assert api.list() == {}


def test_list_costs_what_it_reads_and_ends_with_the_quota(api: Api) -> None:
    """A filter that matches nothing would read 1,000 jobs for one request."""
    for number in range(15):
        api.create(f"job_{number}")
    page = api.list(pageSize="1", filter='jobId:"none*"')
    assert list(page) == ["nextPageToken"], "reads of two, four and eight jobs"
    assert api.send_refused("GET", f"{JOBS}/digits_1")["code"] == 429


def test_caller_who_uses_up_the_quota_of_creations_leaves_every_other_caller_a_share() -> None:
    """A share is a tenth of the quota of the project."""
    shares, per_minute, share = Shares(lambda: 0.0), 60, 6
    flood = [shares.take("flood", per_minute) > 0 for _ in range(70)]
    assert flood == [False] * share + [True] * (70 - share)
    others = [shares.take("anna", per_minute) > 0 for _ in range(share + 1)]
    assert others == [False] * share + [True]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", JOBS),
        ("GET", f"{JOBS}/digits_1"),
        ("PATCH", f"{JOBS}/digits_1"),
        ("POST", f"{JOBS}/digits_1:cancel"),
        ("GET", CUSTOM_JOBS),
        ("DELETE", f"{CUSTOM_JOBS}/1"),
        ("GET", "/v1/projects/my-project:getConfig"),
        ("GET", "/v1/projects/my-project/locations"),
    ],
)
def test_every_request_but_create_is_counted_even_if_not_found(
    api: Api, method: str, path: str
) -> None:
    for _ in range(3):
        assert api.send(method, path, {})[0] != 429
    assert api.send(method, path, {})[0] == 429


def test_creations_do_not_use_the_request_quota(api: Api) -> None:
    for number in range(5):
        api.create(f"job_{number}")
        api.send_ok("POST", CUSTOM_JOBS, BODY, schema="CustomJob")
    api.list()
    for _ in range(2):
        api.list()
    assert api.send_refused("GET", JOBS)["code"] == 429
    api.create("job_5")


def test_unauthorized_requests_do_not_use_the_quota(api: Api) -> None:
    for _ in range(5):
        assert api.send_refused("GET", JOBS, token=UNPRIVILEGED)["code"] == 403
        assert api.send_refused("GET", JOBS, token=UNKNOWN)["code"] == 401
        assert api.send_refused("GET", JOBS, token=None)["code"] == 401
        assert api.send_refused("GET", "/v1/projects/another/jobs")["code"] == 403
        assert (
            api.send("POST", f"{JOBS}/x:testIamPermissions", {"permissions": []}, token=UNKNOWN)[0]
            == 200
        )
    for _ in range(3):
        api.list()


def test_cancel_refused_by_quota_cancels_nothing(api: Api, world: World) -> None:
    world.submit(a_spec())
    for _ in range(3):
        api.list()
    assert api.send_refused("POST", f"{JOBS}/digits_1:cancel", {})["code"] == 429
    assert world.state == "QUEUED"


def test_function_instance_has_one_bucket_of_configured_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    wiring.requests.cache_clear()
    assert wiring.requests() is wiring.requests()
    assert wiring.requests().per_minute == 300
    wiring.requests.cache_clear()
