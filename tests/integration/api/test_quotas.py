"""How often the API may be asked: what counts, for whom, and when there is room again."""

from __future__ import annotations

import threading
from collections import Counter

import pytest

from shared.api.quotas import MINUTE_S, Bucket
from shared.memory.access import MemoryAccess
from shared.wiring import api as wiring
from tests.integration.api.client import CUSTOM_JOBS, JOBS, NOBODY, VIEWER, Api, an_app
from tests.integration.api.test_custom_jobs import BODY
from tests.support.jobs import a_spec
from tests.support.world import World


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_bucket_lets_its_number_through_at_once_and_then_as_time_passes(clock: Clock) -> None:
    bucket = Bucket(300, clock)
    assert [bucket.take() for _ in range(300)] == [0] * 300
    assert bucket.take() == 1
    clock.now += 0.2
    assert [bucket.take(), bucket.take()] == [0, 1], "one every fifth of a second"
    clock.now += MINUTE_S
    assert [bucket.take() for _ in range(301)] == [0] * 300 + [1]


def test_who_keeps_to_the_quota_in_every_minute_is_never_refused(clock: Clock) -> None:
    bucket = Bucket(6, clock)
    for _ in range(20):
        assert [bucket.take() for _ in range(6)] == [0] * 6
        clock.now += MINUTE_S
    for _ in range(100):
        assert bucket.take() == 0
        clock.now += 10


def test_a_refusal_costs_nothing_and_says_how_long_to_wait(clock: Clock) -> None:
    bucket = Bucket(2, clock)
    assert [bucket.take() for _ in range(6)] == [0, 0, 30, 30, 30, 30]
    clock.now += 29
    assert bucket.take() == 1
    clock.now += 1
    assert bucket.take() == 0


def test_no_limit_is_none(clock: Clock) -> None:
    assert {Bucket(0, clock).take() for _ in range(10_000)} == {0}


def test_many_threads_get_no_more_together_than_one(clock: Clock) -> None:
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
    """With room for three requests."""
    app = an_app(world, access, monkeypatch, Bucket(3, clock))
    return Api(world, access, app.test_client())


def test_requests_beyond_the_quota_are_refused_in_googles_form_until_there_is_room(api: Api, clock: Clock) -> None:
    for _ in range(3):
        api.list()
    error = api.refused("GET", f"{JOBS}/digits_1")
    sentence = "The request exceeds the allowed maximum of 3 requests per minute."
    assert error == {
        "code": 429,
        "message": f"Quota failure for project my-project. {sentence}",
        "status": "RESOURCE_EXHAUSTED",
        "details": [
            {
                "@type": "type.googleapis.com/google.rpc.QuotaFailure",
                "violations": [{"subject": "project:my-project", "description": sentence}],
            },
            {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": "RATE_LIMIT_EXCEEDED",
                "domain": "googleapis.com",
                "metadata": {"consumer": "projects/my-project", "quota_limit_value": "3"},
            },
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "20s"},
        ],
    }
    answer = api.http.get(JOBS, headers={"Authorization": f"Bearer {VIEWER}"})
    assert (answer.status_code, answer.headers["Retry-After"]) == (429, "20")
    clock.now += 20
    assert api.list() == {}


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
def test_everything_but_a_creation_counts_even_if_nothing_is_found(api: Api, method: str, path: str) -> None:
    for _ in range(3):
        assert api.ask(method, path, {})[0] != 429
    assert api.ask(method, path, {})[0] == 429


def test_creations_have_a_quota_of_their_own(api: Api) -> None:
    for nth in range(5):
        api.create(f"job_{nth}")
        api.done("POST", CUSTOM_JOBS, BODY, schema="CustomJob")
    api.list()
    for _ in range(2):
        api.list()
    assert api.refused("GET", JOBS)["code"] == 429
    api.create("job_5")


def test_strangers_do_not_use_up_the_projects_quota(api: Api) -> None:
    for _ in range(5):
        assert api.refused("GET", JOBS, token=NOBODY)["code"] == 403
        assert api.refused("GET", JOBS, token="ya29.expired")["code"] == 401
        assert api.refused("GET", JOBS, token=None)["code"] == 401
        assert api.refused("GET", "/v1/projects/another/jobs")["code"] == 403
        assert api.ask("POST", f"{JOBS}/x:testIamPermissions", {"permissions": []}, token="ya29.expired")[0] == 200
    for _ in range(3):
        api.list()


def test_a_refused_cancellation_cancels_nothing(api: Api, world: World) -> None:
    world.submit(a_spec())
    for _ in range(3):
        api.list()
    assert api.refused("POST", f"{JOBS}/digits_1:cancel", {})["code"] == 429
    assert world.state == "QUEUED"


def test_an_instance_of_the_function_has_one_bucket_of_the_services_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    wiring.requests.cache_clear()
    assert wiring.requests() is wiring.requests()
    assert wiring.requests().per_minute == 300
    wiring.requests.cache_clear()
