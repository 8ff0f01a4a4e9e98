"""Any request gets a response in Google's form, never a 500, and creates a complete job
or nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.api.client import CUSTOM_JOBS, JOBS, OWNER, TOKENS, Api, an_app
from tests.integration.api.test_custom_jobs import POOLS
from tests.support.jobs import a_spec
from tests.support.world import World
from tests.unit.jobspec.test_any_document import ANYTHING, PLAUSIBLE
from tests.unit.jobspec.test_any_document import CUSTOM_JOBS as PLAUSIBLE_CUSTOM_JOBS
from trainmaster.core.ledger import fold
from trainmaster.jobspec.formats.base_model import nested_models
from trainmaster.jobspec.formats.vertex import CustomJobSpec
from trainmaster_local.memory.access import MemoryAccess

VALID_JOB: dict[str, Any] = {"jobId": "digits_1", **a_spec()}
SPEC: dict[str, Any] = VALID_JOB["trainingInput"]
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
VALID_CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "workerCount": st.integers(1, 4) | st.integers(1, 4).map(str),
        "args": st.lists(TEXT, max_size=3),
        "scheduling": st.integers(1, 10**6).map(lambda seconds: {"maxRunningTime": f"{seconds}s"}),
        "masterType": st.sampled_from(("n1-standard-4", "standard", "n1-highmem-8", "large_model")),
        "enableWebAccess": st.just("False"),
    },
)
WRONG_CHANGES = st.dictionaries(
    st.sampled_from((*SPEC, "evaluatorCount", "labels")), ANYTHING, max_size=1
)
TRAININGS = st.builds(
    lambda valid, wrong: {"jobId": "digits_1", "trainingInput": {**SPEC, **valid, **wrong}},
    VALID_CHANGES,
    st.just({}) | WRONG_CHANGES,
)
CUSTOMS = st.builds(
    lambda name, replicas, wrong: {
        "displayName": name,
        "jobSpec": {"workerPoolSpecs": [POOLS[0], {**POOLS[1], "replicaCount": replicas}], **wrong},
    },
    TEXT,
    st.integers(0, 3),
    st.just({})
    | st.dictionaries(st.sampled_from(tuple(nested_models(CustomJobSpec))), ANYTHING, max_size=1),
)


def as_bytes(documents: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return documents.map(lambda document: json.dumps(document, default=str).encode())


BROKEN = st.builds(
    lambda cut, junk: json.dumps(VALID_JOB).encode()[:cut] + junk,
    st.integers(0, 600),
    st.binary(max_size=20),
)
BODIES = st.one_of(
    as_bytes(st.one_of(ANYTHING, PLAUSIBLE, PLAUSIBLE_CUSTOM_JOBS)), BROKEN, st.binary(max_size=60)
)
REQUESTS = st.one_of(
    st.tuples(st.just(JOBS), as_bytes(TRAININGS)),
    st.tuples(st.just(CUSTOM_JOBS), as_bytes(CUSTOMS)),
    st.tuples(st.sampled_from((JOBS, CUSTOM_JOBS)), BODIES),
)
WORDS = st.text(max_size=20) | st.sampled_from(
    ("labels", "labels,etag", "etag", "jobId:a*", "state:", "(", "100", "-1")
)
KNOWN_METHODS = st.sampled_from(
    [
        ("PATCH", f"{JOBS}/digits_1"),
        ("POST", f"{JOBS}/digits_1:cancel"),
        ("POST", f"{JOBS}/digits_1:setIamPolicy"),
        ("POST", f"{JOBS}/digits_1:testIamPermissions"),
        ("GET", f"{JOBS}/digits_1"),
        ("GET", JOBS),
        ("GET", CUSTOM_JOBS),
        ("DELETE", f"{CUSTOM_JOBS}/digits_1"),
    ]
)


@contextmanager
def an_api() -> Iterator[Api]:
    """Yield a new API, so that no body depends on an earlier one."""
    with pytest.MonkeyPatch.context() as patch:
        world, access = World(), MemoryAccess(TOKENS)
        app = an_app(world, access, patch)
        yield Api(world, access, app.test_client())


def check_complete_job_or_nothing(path: str, body: bytes) -> None:
    with an_api() as api:
        status, content = api.send("POST", path, body)
        jobs = api.world.store.recent_jobs(5)
        if status == 200:
            (job,) = jobs
            loaded = api.world.store.load_attempt(job.job_id)
            assert loaded is not None
            assert fold(api.world.store.ledger(job.job_id)) == loaded.state
            assert len(loaded.state.replicas) == len(job.plan.replica_ids)
            assert api.world.bus.drain()
            name = f"{JOBS}/{content['jobId']}" if path == JOBS else f"/v1/{content['name']}"
            assert api.send("GET", name) == (200, content)
        else:
            assert status in {400, 403, 429}, content  # 403: a resource that the caller may not use
            assert (jobs, api.world.bus.drain(), api.world.store.rejections()) == ((), [], ())


def examples_setting(examples: int) -> settings:
    return settings(
        max_examples=examples,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


@given(REQUESTS)
@examples_setting(2 * settings().max_examples)
def test_any_body_creates_a_complete_job_or_nothing(request: tuple[str, bytes]) -> None:
    check_complete_job_or_nothing(*request)


@pytest.mark.heavy(
    fact="no body of a request creates half of a job", quick="thirty bodies in the same module"
)
@pytest.mark.timeout(1800)
@given(REQUESTS)
@examples_setting(10_000)
def test_ten_thousand_bodies_create_complete_jobs_or_nothing(request: tuple[str, bytes]) -> None:
    check_complete_job_or_nothing(*request)


@given(
    target=KNOWN_METHODS,
    body=BODIES,
    query=st.dictionaries(
        st.sampled_from(("updateMask", "filter", "pageSize", "pageToken")), WORDS
    ),
)
@examples_setting(2 * settings().max_examples)
def test_any_request_to_known_methods_gets_an_expected_status(
    target: tuple[str, str], body: bytes, query: dict[str, str]
) -> None:
    with an_api() as api:
        api.create()
        status, content = api.send(*target, body, **query)
        assert status in {200, 400, 404, 409}, content
        loaded = api.world.store.load_attempt("digits_1")
        assert loaded is not None
        assert fold(api.world.ledger) == loaded.state


@given(
    method=st.sampled_from(("GET", "POST", "PUT", "PATCH", "DELETE")),
    path=st.text(max_size=40),
    body=BODIES,
)
@examples_setting(150)
def test_any_address_gets_an_expected_status(method: str, path: str, body: bytes) -> None:
    with an_api() as api:
        answer = api.http.open(
            f"/v1/projects/my-project/{path}",
            method=method,
            data=body,
            headers={"Authorization": f"Bearer {OWNER}"},
        )
        assert answer.status_code in {200, 308, 400, 404}, (method, path, answer.data)
