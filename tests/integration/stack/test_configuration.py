"""Configuration that the stack writes for clients, functions and VMs."""

from __future__ import annotations

import http.client
import json
import sys
from contextlib import closing
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.serving import serving
from trainmaster.api import handler
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.packaging.agent_archive import agent_archive, agent_object
from trainmaster.packaging.algorithms_archive import algorithms_archive, algorithms_object
from trainmaster_emulators.machines.catalog import REGIONS
from trainmaster_emulators.process import stack_config, state
from trainmaster_emulators.process.stack_config import FUNCTIONS, StackConfig
from trainmaster_emulators.process.state import Endpoints, StackError, StackState, StackStatus
from trainmaster_emulators.services import iam, pubsub
from trainmaster_emulators.stack import client_configuration, runtime_images, stack

ENDPOINTS = Endpoints(
    firestore="h:1",
    pubsub="h:2",
    storage="h:3",
    storage_tls="h:4",
    compute="h:5",
    proxy="h:6",
    logging="h:7",
    monitoring="h:11",
    iam="h:8",
    api="h:9",
)


def test_exported_values_are_quoted_for_the_shell() -> None:
    assert (
        client_configuration.export_lines({"A": "it's $HOME", "B": "plain"})
        == "export A='it'\"'\"'s $HOME'\nexport B=plain\n"
    )


def test_stack_takes_limits_from_the_shell_but_no_address_of_an_installation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRAINMASTER_LIMITS", "vcpus=8,team:vision=3")
    monkeypatch.setenv("TRAINMASTER_JOBS_PER_MINUTE", "7")
    monkeypatch.setenv("TRAINMASTER_BUCKET", "of-google-cloud")
    monkeypatch.setenv("TRAINMASTER_COMPUTE_ENDPOINT", "https://elsewhere.example.com")
    given = stack_config.settings_of_shell("demo-project")
    assert given == {
        "TRAINMASTER_LIMITS": "vcpus=8,team:vision=3",
        "TRAINMASTER_JOBS_PER_MINUTE": "7",
    }
    config = StackConfig(bucket="b", settings=given)
    variables = client_configuration.application_environment(config, ENDPOINTS)
    assert variables.items() >= given.items()
    assert variables["TRAINMASTER_BUCKET"] == "b"


def test_wrong_setting_of_the_shell_is_refused_before_the_stack_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRAINMASTER_LIMITS", "weight:vision=3")
    with pytest.raises(ValidationError, match="'weight:vision' is not a resource"):
        stack_config.settings_of_shell("demo-project")


def test_settings_of_a_command_that_creates_no_vms_do_not_build_the_agent() -> None:
    """Building it would take more time than most commands do."""
    agent_archive.cache_clear()
    config = StackConfig(project="p", bucket="b")
    variables = client_configuration.application_environment(config, ENDPOINTS, creates_vms=False)
    assert agent_archive.cache_info().misses == 0
    of_functions = client_configuration.application_environment(config, ENDPOINTS)
    assert of_functions.keys() - variables.keys() == {"TRAINMASTER_AGENT"}


def test_functions_get_the_documented_settings() -> None:
    variables = client_configuration.application_environment(
        StackConfig(project="p", bucket="b"), ENDPOINTS
    )
    assert variables == {
        "TRAINMASTER_PROJECT": "p",
        "TRAINMASTER_INSTALLATION": "",
        "TRAINMASTER_BUCKET": "b",
        "TRAINMASTER_AGENT": f"gs://trainmaster-local-stage/{agent_object(agent_archive(compiled=True))}",
        "TRAINMASTER_ALGORITHMS": f"gs://trainmaster-local-stage/{algorithms_object(algorithms_archive())}",
        "TRAINMASTER_ADDRESSING": "emulator",
        "TRAINMASTER_NOTIFICATIONS": "true",
        "TRAINMASTER_WORKER_SERVICE_ACCOUNT": "trainmaster-worker@p.iam.gserviceaccount.com",
        "TRAINMASTER_COMPUTE_ENDPOINT": "http://h:5",
        "GOOGLE_CLOUD_PROJECT": "p",
        "FIRESTORE_EMULATOR_HOST": "h:1",
        "PUBSUB_EMULATOR_HOST": "h:2",
        "STORAGE_EMULATOR_HOST": "http://h:3",
        "TRAINMASTER_LOGGING_ENDPOINT": "http://h:7",
        "TRAINMASTER_MONITORING_ENDPOINT": "http://h:11",
        "TRAINMASTER_METRICS": "30",
        "TRAINMASTER_IDENTITY_KEYS": "http://h:5/emulator/v1/certs",
        "TRAINMASTER_IAM_ENDPOINT": "http://h:8",
        "TRAINMASTER_IAM_ACCOUNTS_ENDPOINT": "http://h:8",
        "TRAINMASTER_IAM_PEOPLE_ENDPOINT": "http://h:8",
        "TRAINMASTER_IAM_TOKENS_ENDPOINT": "http://h:8",
        "TRAINMASTER_SECRETS_ENDPOINT": "http://h:8",
        "TRAINMASTER_REGISTRY_ENDPOINT": "http://h:8",
        "TRAINMASTER_TPU": "true",
        "TRAINMASTER_TPU_ENDPOINT": "http://h:5",
    }


def test_each_start_writes_another_access_token(tmp_path: Path) -> None:
    tokens = set()
    for _ in range(2):
        client_configuration.write_configuration(tmp_path, StackConfig(), ENDPOINTS)
        tokens.add(client_configuration.token_file(tmp_path).read_text(encoding="utf-8").strip())
    assert len(tokens) == 2
    assert all(len(token) >= 32 for token in tokens)


def test_service_account_of_the_project_needs_the_secret_in_its_token() -> None:
    def answer(account: str, secret: str) -> tuple[int, object]:
        with closing(
            http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
        ) as connection:
            token = iam.access_token(account, secret)
            assert handler._TOKEN.fullmatch(token), "the function api refuses any other text"
            connection.request("GET", "/v1/userinfo", headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            return response.status, json.loads(response.read()).get("email")

    ours, other = "nightly@p-1.iam.gserviceaccount.com", "nightly@p-2.iam.gserviceaccount.com"
    with serving(iam.listen(0, "p-1", "a" * 32)) as address:
        assert answer(ours, "a" * 32) == (200, ours)
        assert answer(ours, "b" * 32)[0] == 401
        assert answer(other, "a" * 32)[0] == 401


def test_account_of_the_stack_needs_the_secret_in_its_token() -> None:
    def status(token: str) -> int:
        with closing(
            http.client.HTTPConnection(address.removeprefix("http://"), timeout=10)
        ) as connection:
            connection.request("GET", "/v1/userinfo", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status

    with serving(iam.listen(0, "p", "secret")) as address:
        assert status(iam.access_token(iam.OWNER, "secret")) == 200
        for guess in (iam.OWNER, f"{iam.OWNER}.", f"{iam.OWNER}.other", iam.VIEWER):
            assert status(guess) == 401


def test_state_directory_is_open_to_its_user_only(tmp_path: Path) -> None:
    existing = tmp_path / "existing"
    existing.mkdir(mode=0o755)
    for folder in (existing, tmp_path / "new"):
        assert stack._prepare(folder).stat().st_mode & 0o777 == 0o700


def test_programs_on_vms_get_the_variables_of_every_client(tmp_path: Path) -> None:
    variables = client_configuration.vm_environment(
        tmp_path, StackConfig(project="p", bucket="b"), ENDPOINTS
    )
    bundle = str(tmp_path / "proxy" / "ca.pem")
    assert (variables["SSL_CERT_FILE"], variables["REQUESTS_CA_BUNDLE"]) == (bundle, bundle)
    assert variables["CURL_CA_BUNDLE"] == str(tmp_path / "proxy" / "ca-cert.pem")
    assert variables["BOTO_CONFIG"] == str(tmp_path / "clients" / "boto")
    assert variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE"] == "http://h:3/storage/v1/"


def test_shell_gets_the_address_of_the_api_and_a_short_polling_interval(tmp_path: Path) -> None:
    stored = StackState(
        id="s",
        status=StackStatus.READY,
        config=StackConfig(project="p", bucket="b"),
        backend="emulators",
        supervisor_pid=1,
        supervisor_started_at=0,
        started_at=0,
        endpoints=ENDPOINTS,
    )
    variables = client_configuration.environment(tmp_path, stored)
    assert variables["TRAINMASTER_API_ENDPOINT"] == "http://h:9"
    assert variables["CLOUDSDK_ML_ENGINE_POLLING_INTERVAL"] == "2"


def test_shell_gets_a_region_for_jobs_that_name_none(tmp_path: Path) -> None:
    stored = StackState(
        id="s",
        status=StackStatus.READY,
        config=StackConfig(project="p", bucket="b"),
        backend="emulators",
        supervisor_pid=1,
        supervisor_started_at=0,
        started_at=0,
        endpoints=ENDPOINTS,
    )
    region = client_configuration.environment(tmp_path, stored)["TRAINMASTER_REGION"]
    assert region in REGIONS


def test_each_function_has_a_topic() -> None:
    assert [pubsub.topic_of(name) for name in FUNCTIONS] == [
        "trainmaster-upload",
        "trainmaster-submit",
        "trainmaster-vm-ready",
        "trainmaster-replica-exit",
        "trainmaster-maintenance",
        "trainmaster-provision",
        "trainmaster-tune",
        "trainmaster-sweep",
    ]


def test_built_runtime_replaces_its_image_and_is_the_default(tmp_path: Path) -> None:
    for name in ("pytorch", "tensorflow"):
        (tmp_path / name).mkdir()
    (tmp_path / "pytorch" / runtime_images.STAMP).touch()
    family = RUNTIMES["pytorch-2.13"].image.split("/")[-1]
    assert runtime_images.image_table(tmp_path) == {
        family: str(tmp_path / "pytorch"),
        "default": str(tmp_path / "pytorch"),
    }


def test_vms_use_the_stacks_own_python_when_no_runtime_is_built(tmp_path: Path) -> None:
    assert runtime_images.image_table(tmp_path / "none") == {"default": sys.prefix}


def test_truncated_state_file_is_a_stack_error(tmp_path: Path) -> None:
    file = tmp_path / state.STATE_FILE
    file.touch(mode=state.PRIVATE_FILE)
    file.write_text('{"id": "x', encoding="utf-8")
    with pytest.raises(StackError, match=r"stack\.json: cannot read the stack's state .*: rm -r /"):
        state.read(tmp_path)
