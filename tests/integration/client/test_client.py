"""The Python client against the function api, which runs in memory behind a port."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import trainmaster
from tests.integration.api.client import OWNER, PROJECT, TOKENS, VIEWER, an_app
from tests.integration.api.served import serving
from tests.integration.api.test_custom_jobs import BODY
from tests.integration.logging.cloud import Cloud
from tests.support.jobs import a_spec
from tests.support.world import World
from trainmaster import (
    Client,
    InvalidJobError,
    JobFailedError,
    PermanentError,
    TemporaryError,
)
from trainmaster.core.model.job import JobState
from trainmaster.wiring import objects
from trainmaster_local.memory.access import MemoryAccess
from trainmaster_local.memory.objects import MemoryObjects

MANIFESTS = Path(__file__).parents[2] / "unit" / "jobspec" / "manifests"


@dataclass
class Running:
    """An installation, and a client of its API."""

    world: World
    client: Client
    endpoint: str
    """Address of the API."""
    token_file: Path
    """File with the access token of the client."""


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Return a client of an installation in which each GET advances the job by one step."""
    world = World()
    app = an_app(world, MemoryAccess(TOKENS), monkeypatch)

    def moving(environ: dict[str, Any], start: Any) -> Any:
        if environ["REQUEST_METHOD"] == "GET":
            advance(world)
        return app(environ, start)

    token_file = tmp_path / "token"
    token_file.write_text(OWNER)
    monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", str(token_file))
    with serving(moving) as endpoint:
        yield Running(world, Client(PROJECT, endpoint, poll_s=0.01), endpoint, token_file)


def advance(world: World) -> None:
    """Advance the newest job by one step; one whose id ends in `bad` fails."""
    for job in world.store.recent_jobs(1):
        world.job_id = job.job_id
        if job.state is JobState.PREPARING:
            world.report_all_ready()
            world.deliver()
        elif job.round.is_held or job.state is JobState.QUEUED:
            world.deliver()
        elif job.state is JobState.RUNNING:
            status = 2 if "bad" in job.spec_json else 0
            world.send("replica-exit", job.plan.primary, cause="process", exit_status=status)


def test_job_file_is_submitted_and_waited_for(running: Running, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({"jobId": "digits_{time:%Y}", **a_spec()}))
    job = running.client.submit(tmp_path / "job.yaml")
    assert (job.job_id, job.state, job.has_ended) == (
        f"digits_{datetime.now(UTC):%Y}",
        "QUEUED",
        False,
    )
    assert running.client.wait(job).state == "SUCCEEDED"
    assert running.client.describe(job.job_id).has_ended


def test_why_returns_the_decisions_with_their_rules_and_the_next_steps(running: Running) -> None:
    job = running.client.submit({"jobId": "bad", **a_spec()})
    queued = running.client.why(job)
    assert queued.decisions[0].text == "The job is valid and new."
    assert queued.next_steps
    with pytest.raises(JobFailedError):
        running.client.wait(job)
    ended = running.client.why("bad")
    assert (ended.state, ended.next_steps) == ("FAILED", ())
    judged = [decision for decision in ended.decisions if decision.rule]
    assert judged[-1].rule == int(running.world.store.ledger("bad")[-1].decision.rule)
    now, error, what_to_do = str(ended).splitlines()[-3:]
    assert now == "Now: FAILED."
    assert error.startswith("Error: The replica chief 0 exited with a non-zero status of 2.")
    assert what_to_do == f"What to do: {ended.what_to_do}"


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        ("digts_1", "; did you mean digits_1?"),
        ("DIGITS_1", "; did you mean digits_1?"),
        ("projects/my-project/jobs/digits_2", "; did you mean digits_1?"),
        ("boston", "boston was not found"),
    ],
)
def test_wrong_job_id_names_the_job_that_is_similar(
    running: Running, wrong: str, hint: str
) -> None:
    running.client.submit({"jobId": "digits_1", **a_spec()})
    for call in (running.client.describe, running.client.why, running.client.cancel):
        with pytest.raises(PermanentError) as refused:
            call(wrong)
        assert str(refused.value).endswith(hint)


def test_wrong_job_id_without_the_permission_to_list_jobs_has_no_hint(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.client.submit({"jobId": "digits_1", **a_spec()})
    api = running.client._api
    answer = api.call

    def refuse_lists(method: str, path: str, *rest: Any, **options: Any) -> dict[str, Any]:
        if path == "jobs":
            raise PermanentError("403 the caller does not have permission")
        return answer(method, path, *rest, **options)

    monkeypatch.setattr(api, "call", refuse_lists)
    with pytest.raises(PermanentError, match=r"digts_1 was not found$"):
        running.client.why("digts_1")


def test_why_of_an_unknown_job_is_refused(running: Running) -> None:
    with pytest.raises(PermanentError, match="nobody"):
        running.client.why("nobody")


def test_failed_job_raises_its_reason(running: Running) -> None:
    job = running.client.submit({"jobId": "bad", **a_spec()})
    with pytest.raises(JobFailedError, match=r"bad: FAILED: .*non-zero status of 2"):
        running.client.wait(job)


def test_vertex_job_is_created_in_its_region(running: Running) -> None:
    job = running.client.submit({**BODY, "trainmaster": {"region": "us-central1"}})
    assert job.address == f"locations/us-central1/customJobs/{job.job_id}"
    assert running.client.wait(job).state == "SUCCEEDED"


def test_manifest_of_kubeflow_is_submitted(running: Running) -> None:
    job = running.client.submit(MANIFESTS / "tf-dist-mnist.yaml", region="us-central1")
    assert job.document["displayName"] == "dist-mnist-for-e2e-test"
    assert [group.count for group in running.world.store.recent_jobs(1)[0].plan.groups] == [1, 2, 1]


def test_job_is_cancelled(running: Running) -> None:
    job = running.client.submit({"jobId": "digits_1", **a_spec()})
    running.client.cancel(job)
    with pytest.raises(JobFailedError, match="digits_1: CANCELLED"):
        running.client.wait(job)


def test_wait_ends_after_its_timeout(running: Running) -> None:
    job = running.client.submit({"jobId": "digits_1", **a_spec()})
    with pytest.raises(TimeoutError, match="digits_1 is PREPARING after 0 s"):
        running.client.wait(job, timeout_s=0)


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        (
            {"jobId": "digits_1", "trainingInput": {"region": "moon"}},
            "Field: trainingInput.region Error: ",
        ),
        (a_spec(), "Field: jobId Error: is required"),
        (
            {"job_id": "digits_1", "training_input": {"worker_count": "two"}},
            r"training_input\.worker_count Error: must be a whole number, not \"two\"\. Example: ",
        ),
        (BODY, "Field: trainmaster.region Error: is required"),
        ({"jobId": "digits_1", "trainingInput": {1, 2}}, "job: is not JSON: .*set"),
        ({"jobId": "digits_1", "trainingInput": {"args": [float("nan")]}}, "job: is not JSON"),
    ],
)
def test_wrong_job_raises_every_problem(running: Running, job: Any, problem: str) -> None:
    with pytest.raises(InvalidJobError, match=problem):
        running.client.submit(job)
    assert running.world.store.recent_jobs(1) == ()


def test_wrong_job_file_raises_every_problem(running: Running, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"there is no file missing\.yaml"):
        running.client.submit("missing.yaml")
    (tmp_path / "job.yaml").write_text("jobId: [1, 2", encoding="utf-8")
    with pytest.raises(InvalidJobError, match=r"^Field: job Error: job\.yaml, line 2, column 1"):
        running.client.submit(tmp_path / "job.yaml")
    (tmp_path / "job.yaml").write_text("jobId: größe", encoding="latin-1")
    with pytest.raises(InvalidJobError, match=r"job\.yaml: is not UTF-8 text"):
        running.client.submit(tmp_path / "job.yaml")


def test_used_job_id_is_not_an_invalid_job(running: Running) -> None:
    running.client.submit({"jobId": "digits_1", **a_spec()})
    with pytest.raises(PermanentError, match="already exists") as raised:
        running.client.submit({"jobId": "digits_1", **a_spec()})
    assert not isinstance(raised.value, InvalidJobError)


def test_public_names_are_listed_and_found() -> None:
    for name in trainmaster.__all__:
        assert getattr(trainmaster, name).__name__ == name
    assert not hasattr(trainmaster, "InvalidJob")


@pytest.mark.parametrize("error", [InvalidJobError, JobFailedError, PermanentError, TemporaryError])
def test_traceback_names_errors_as_users_import_them(error: type[Exception]) -> None:
    (line,) = traceback.format_exception_only(error("why"))
    assert line == f"trainmaster.{error.__name__}: why\n"
    assert pickle.loads(pickle.dumps(error("why"))).args == ("why",)  # noqa: S301 - its own bytes


def test_token_is_read_again_for_each_call(running: Running) -> None:
    running.token_file.write_text(VIEWER)
    with pytest.raises(PermanentError, match=r"aiplatform.customJobs.create"):
        running.client.submit({"jobId": "digits_1", **a_spec()})
    running.token_file.write_text(OWNER)
    assert running.client.submit({"jobId": "digits_1", **a_spec()}).state == "QUEUED"


def test_logs_yields_lines_until_the_job_has_ended(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.client.client.LATE_LINES_S", 0.1)
    cloud = Cloud(tmp_path)
    job = running.client.submit({"jobId": "digits_1", **a_spec()})
    labels = {
        "ml.googleapis.com/job_id": "digits_1",
        "ml.googleapis.com/task_name": "master-replica-0",
    }
    at = str(job.document["createTime"])
    cloud.write(
        {
            "resource": {"type": "ml_job"},
            "labels": labels,
            "timestamp": at,
            "jsonPayload": {"message": "epoch 1"},
        }
    )
    with cloud.serving() as address:
        monkeypatch.setenv("TRAINMASTER_LOGGING_ENDPOINT", address)
        lines = [(line.task, line.message) for line in running.client.logs(job, follow=True)]
        created = datetime.fromisoformat(at)
        since_creation = list(running.client.logs(job, since=created))
        since_later = list(running.client.logs(job, since=created + timedelta(seconds=1)))
        with pytest.raises(PermanentError, match="is no job id"):
            list(running.client.logs('x" OR severity>="DEFAULT', since=created))
    cloud.entries.close()
    assert lines == [("master-replica-0", "epoch 1")]
    assert (len(since_creation), since_later) == (1, [])


def test_settings_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINMASTER_PROJECT", raising=False)
    with pytest.raises(PermanentError, match="TRAINMASTER_PROJECT, or `trainmaster init`"):
        Client()


def test_folder_is_uploaded_and_runs_the_command(
    running: Running,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored = MemoryObjects()
    monkeypatch.setattr(objects, "objects", lambda *_: stored)
    (tmp_path / "my project").mkdir()
    (tmp_path / "my project" / "train.py").write_text("print(1)")
    monkeypatch.setenv("TRAINMASTER_BUCKET", "the-bucket")
    monkeypatch.setenv("TRAINMASTER_REGION", "us-central1")
    client = Client(PROJECT, running.endpoint)
    job = client.submit(folder=tmp_path / "my project", command=["python", "train.py"])
    assert job.job_id.startswith("my_project_")
    assert f"a copy of {tmp_path / 'my project'}: 1 file, 0.0 KiB" in capsys.readouterr().err
    training = job.document["trainingInput"]
    assert (training["region"], training["args"]) == ("us-central1", ["python", "train.py"])
    other = client.submit(
        {"jobId": "b", "trainingInput": {"region": "europe-west4"}}, folder=tmp_path, command=["a"]
    )
    assert other.document["trainingInput"]["region"] == "europe-west4"
    with pytest.raises(PermanentError, match="is not among the files"):
        client.submit(folder=tmp_path / "my project", command=["python", "trian.py"])
    with pytest.raises(PermanentError, match="job: is required, unless there is a folder"):
        client.submit()
    with pytest.raises(PermanentError, match="a folder needs a command"):
        client.submit(folder=tmp_path)


OLD_RUNTIME = {"jobId": "digits_1", **a_spec(runtimeVersion="1.15", pythonVersion="3.7")}


def test_checked_job_is_that_of_the_creation_and_is_not_created(running: Running) -> None:
    checked = running.client.check(OLD_RUNTIME)
    assert (checked.job.job_id, checked.job.state) == ("digits_1", "QUEUED")
    assert running.world.store.load("digits_1") is None
    (note,) = [note for note in checked.notes if "1.15 is replaced by 2.21" in note]
    assert note.startswith("trainingInput.runtimeVersion: ")
    created = running.client.submit(OLD_RUNTIME)
    assert created.document["trainingInput"] == checked.job.document["trainingInput"]
    stored = running.world.store.load("digits_1")
    assert stored is not None
    substitutions = [note.text for note in stored.state.job.plan.origin.substitutions]
    assert list(checked.notes) == substitutions


def test_check_refuses_what_the_creation_refuses(running: Running) -> None:
    wrong = {"jobId": "digits_1", **a_spec(scaleTier="HUGE")}
    errors = []
    for call in (running.client.check, running.client.submit):
        with pytest.raises(InvalidJobError, match=r"^Field: trainingInput\.scaleTier") as raised:
            call(wrong)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]
    with pytest.raises(PermanentError, match="job: is required, unless there is a folder"):
        running.client.check()
    running.client.submit({"jobId": "digits_1", **a_spec()})
    with pytest.raises(PermanentError, match="already exists"):
        running.client.check({"jobId": "digits_1", **a_spec()})


def test_check_of_a_folder_uploads_nothing_and_notes_what_may_fail(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = MemoryObjects()
    monkeypatch.setattr(objects, "objects", lambda *_: stored)
    monkeypatch.setenv("TRAINMASTER_BUCKET", "the-bucket")
    (tmp_path / "train.py").write_text("import torch\nimport einops\n")
    client = Client(PROJECT, running.endpoint)
    checked = client.check(folder=tmp_path, command=["python", "train.py"], region="us-central1")
    assert stored.created("gs://the-bucket/", 9) == ()
    assert running.world.store.recent_jobs(9) == ()
    assert checked.job.document["trainingInput"]["args"] == ["python", "train.py"]
    runtime, missing, *_ = checked.notes
    assert runtime.startswith("runtime: pytorch-2.13, because train.py:1 imports torch")
    assert missing.startswith("train.py:2 imports einops, which neither")
    with pytest.raises(PermanentError, match="is not among the files"):
        client.check(folder=tmp_path, command=["python", "trian.py"], region="us-central1")


def test_checked_vertex_job_has_its_address(running: Running) -> None:
    checked = running.client.check({**BODY, "trainmaster": {"region": "us-central1"}})
    assert checked.job.address.startswith("locations/us-central1/customJobs/")
    assert running.world.store.recent_jobs(9) == ()
