"""The real gcloud against the Logging emulator: `logging read`, and `ai-platform jobs stream-logs`
to its end.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.integration.logging.cloud import PROJECT, Cloud, an_entry
from tests.support.gcloud import gcloud_environment, run_gcloud
from tests.support.serving import serving
from trainmaster.api.request import Call, Request, streams_log

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


TASK_COLUMN = 2
"""Column of the task in the lines of `stream-logs`, of which the last one is the message."""
NUMBER = "123456789012345678"
CUSTOM_JOB = f"projects/{PROJECT}/locations/us-central1/customJobs/{NUMBER}"
ENDED = {
    f"/v1/projects/{PROJECT}/jobs/digits_1": {"jobId": "digits_1", "state": "SUCCEEDED"},
    f"/v1/{CUSTOM_JOB}": {"name": CUSTOM_JOB, "state": "JOB_STATE_SUCCEEDED"},
}


class JobsApi(BaseHTTPRequestHandler):
    """The only call of either API that streaming makes: it returns a job that has ended."""

    callers: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.callers.append(self.headers["User-Agent"])
        job = ENDED.get(self.path.partition("?")[0], {})
        body = json.dumps({**job, "endTime": "2026-11-21T03:00:00Z"}).encode()
        self.send_response(200 if job else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def jobs_api() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), JobsApi)) as address:
        yield address


def gcloud(folder: Path, logging: str, jobs: str, *arguments: str) -> str:
    environment = {
        **gcloud_environment(folder, PROJECT, {"logging": logging, "ml": jobs, "aiplatform": jobs}),
        "CLOUDSDK_ML_ENGINE_POLLING_INTERVAL": "1",
        "TZ": "UTC",
    }
    done = run_gcloud(*arguments, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def ago(seconds: float) -> str:
    """Return the time so many seconds ago, in nanoseconds as Cloud Logging writes it."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime(
        "%Y-%m-%dT%H:%M:%S.%f"
    ) + "001Z"


def test_gcloud_reads_and_streams_the_log_of_a_job(tmp_path: Path, jobs_api: str) -> None:
    cloud = Cloud(tmp_path, clock_ns=time.time_ns)
    resource = an_entry("")["resource"]
    cloud.write(
        *[
            {
                "timestamp": ago(600 - n / 10),
                "insertId": f"i{n:04d}",
                "resource": resource,
                "severity": "INFO",
            }
            | {"jsonPayload": {"message": f"step {n}"}}
            for n in range(1500)
        ],
        an_entry(
            "of another job",
            0,
            timestamp=ago(60),
            resource={"type": "ml_job", "labels": {"job_id": "other"}},
        ),
        {
            "timestamp": ago(30),
            "resource": resource,
            "severity": "ERROR",
            "textPayload": "two\nlines",
        },
        # gcloud shows entries older than five seconds. This one is old enough at the next poll.
        {"timestamp": ago(3), "resource": resource, "severity": "INFO", "textPayload": "the last"},
    )
    with cloud.serving() as address:
        streamed = gcloud(
            tmp_path, address, jobs_api, "ai-platform", "jobs", "stream-logs", "digits_1"
        )
        read = gcloud(
            tmp_path,
            address,
            jobs_api,
            "logging",
            "read",
            'resource.labels.job_id="digits_1" severity>=ERROR',
            "--format=value(severity,textPayload)",
        )
    lines = [line.split("\t") for line in streamed.splitlines()]
    assert [line[-1] for line in lines] == [f"step {n}" for n in range(1500)] + [
        "two",
        "lines",
        "the last",
    ]
    assert {line[TASK_COLUMN] for line in lines} == {"worker-replica-0"}
    # The API knows by their User-Agent that these requests follow a log.
    assert all(
        streams_log(
            Call(
                Request("GET", path="", query={}, headers={"user-agent": caller}),
                params={},
                token="",
                idempotency_key="",
            )
        )
        for caller in JobsApi.callers
    )
    assert JobsApi.callers
    assert read == "ERROR\ttwo\nlines\n"
    cloud.entries.close()


def test_gcloud_streams_the_log_of_a_custom_job_by_its_number(
    tmp_path: Path, jobs_api: str
) -> None:
    cloud = Cloud(tmp_path, clock_ns=time.time_ns)
    labels = {"project_id": PROJECT, "job_id": NUMBER, "task_name": "workerpool0-0"}
    entry = an_entry("hello", timestamp=ago(30), resource={"type": "ml_job", "labels": labels})
    cloud.write(entry, an_entry("of another job", timestamp=ago(30)))
    with cloud.serving() as address:
        streamed = gcloud(
            tmp_path,
            address,
            jobs_api,
            "ai",
            "custom-jobs",
            "stream-logs",
            NUMBER,
            "--region=us-central1",
            "--polling-interval=1",
        )
    rows = [line.split("\t") for line in streamed.splitlines()]
    assert [(row[TASK_COLUMN], row[-1]) for row in rows] == [("workerpool0-0", "hello")]
    cloud.entries.close()
