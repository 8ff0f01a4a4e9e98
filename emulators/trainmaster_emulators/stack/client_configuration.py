"""Configure the real clients (client libraries, gcloud, gsutil) so that they use this stack and
nothing else.

gcloud and gsutil get separate configuration, credentials and state under `clients/`. They use
neither the user's login nor the state of an unfinished upload to another stack.
"""

from __future__ import annotations

import configparser
import hashlib
import os
import re
import secrets
import shlex
from pathlib import Path
from typing import Final

from trainmaster.packaging.agent_archive import agent_archive, agent_object
from trainmaster.packaging.algorithms_archive import algorithms_archive, algorithms_object
from trainmaster.wiring.installation import REGION
from trainmaster_emulators.machines.gcsfuse.server import gcsfuse_program
from trainmaster_emulators.process import processes
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import Endpoints, StackError, StackState
from trainmaster_emulators.process.state_dirs import STATE_DIR_VARIABLE
from trainmaster_emulators.services import iam

CLIENTS: Final = "clients"
PROXY_DIR: Final = "proxy"
"""Folder of the proxy's certificates below the state directory."""
API_ENDPOINT_VARIABLE: Final = "TRAINMASTER_API_ENDPOINT"
"""Address of the function `api`, for `aiplatform.init(api_endpoint=…)` and `trainmaster schedule
--submit-as`.
"""
SECRET_BYTES: Final = 16
REGION_OF_JOBS: Final = "us-central1"
"""Region of jobs that name none. The local stack has several; the examples use this one."""
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
"""Source: POSIX, "Environment Variable Definition"."""


def token_file(state_dir: Path) -> Path:
    """Return the path of the access token, which the function `api` checks.

    Each stack has its own.
    """
    return state_dir / CLIENTS / "token"


def write_configuration(state_dir: Path, config: StackConfig, endpoints: Endpoints) -> None:
    """Write gcloud's and gsutil's files under `clients/`, and a new access token."""
    folder = state_dir / CLIENTS
    for name in ("gcloud", "gsutil"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    token = iam.access_token(iam.OWNER, secrets.token_hex(SECRET_BYTES))
    token_file(state_dir).write_text(token + "\n", encoding="utf-8")
    tls_host, _, tls_port = endpoints.storage_tls.partition(":")
    boto = configparser.ConfigParser()
    boto["Credentials"] = {"gs_json_host": tls_host, "gs_json_port": tls_port}
    # fake-gcs-server signs its own certificate for names that do not include a loopback address.
    boto["Boto"] = {"https_validate_certificates": "False"}
    boto["GSUtil"] = {
        "prefer_api": "json",
        "use_gcloud_storage": "False",
        "default_project_id": config.project,
        "state_dir": str(folder / "gsutil"),
        "software_update_check_period": "0",
        # One process: parallel uploads are tuned for the real service, and take two seconds to
        # start.
        "parallel_process_count": "1",
    }
    with (folder / "boto").open("w", encoding="utf-8") as file:
        boto.write(file)


def environment(state_dir: Path, state: StackState, *, creates_vms: bool = True) -> dict[str, str]:
    """Return the variables that `trainmaster local env` exports.

    `creates_vms`: as in `application_environment`.
    """
    config = state.config
    endpoints = state.endpoints
    variables = {
        **application_environment(config, endpoints, creates_vms=creates_vms),
        **processes.proxy_exceptions(endpoints.addresses(), os.environ),
        **cloud_sdk_environment(state_dir, config, endpoints),
        STATE_DIR_VARIABLE: str(state_dir),
        REGION: REGION_OF_JOBS,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_FIRESTORE": f"http://{endpoints.firestore}/",
        # gcloud polls a job's log once a minute by default, and local jobs take seconds.
        "CLOUDSDK_ML_ENGINE_POLLING_INTERVAL": "2",
    }
    if endpoints.scheduler:
        variables["TRAINMASTER_SCHEDULER_ENDPOINT"] = f"http://{endpoints.scheduler}"
    if endpoints.billing:
        variables["TRAINMASTER_BILLING_ENDPOINT"] = f"http://{endpoints.billing}"
    if endpoints.api:
        variables[API_ENDPOINT_VARIABLE] = f"http://{endpoints.api}"
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_ML"] = f"http://{endpoints.api}/"
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM"] = f"http://{endpoints.api}/"
    return variables


def cloud_sdk_environment(
    state_dir: Path, config: StackConfig, endpoints: Endpoints
) -> dict[str, str]:
    """Return the variables of gcloud and gsutil, in a shell and on a VM."""
    folder = state_dir / CLIENTS
    variables = {
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        "CLOUDSDK_CORE_PROJECT": config.project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "0",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token_file(state_dir)),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"http://{endpoints.storage}/storage/v1/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": f"http://{endpoints.pubsub}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"http://{endpoints.logging}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_MONITORING": f"http://{endpoints.monitoring}/",
        "BOTO_CONFIG": str(folder / "boto"),
    }
    if endpoints.scheduler:
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDSCHEDULER"] = (
            f"http://{endpoints.scheduler}/"
        )
    if endpoints.compute:
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"] = (
            f"http://{endpoints.compute}/compute/v1/"
        )
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"] = f"http://{endpoints.compute}/"
    if endpoints.iam:
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_IAM"] = f"http://{endpoints.iam}/"
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER"] = f"http://{endpoints.iam}/"
    return variables


def gcsfuse_object() -> str:
    """Return the name of gcsfuse in the stage bucket."""
    return f"tools/{hashlib.sha256(gcsfuse_program()).hexdigest()}/gcsfuse"


def application_environment(
    config: StackConfig, endpoints: Endpoints, *, creates_vms: bool = True
) -> dict[str, str]:
    """Return the settings of `docs/interfaces.md` section 5, for the functions and for users of the
    library.

    `creates_vms`: False leaves out the agent's address, which takes 0.2 s: its name is the hash of
    its compiled modules.
    """
    variables = {
        "TRAINMASTER_PROJECT": config.project,
        "TRAINMASTER_INSTALLATION": "",
        "TRAINMASTER_BUCKET": config.bucket,
        "TRAINMASTER_ALGORITHMS": (
            f"gs://{config.stage_bucket}/{algorithms_object(algorithms_archive())}"
        ),
        "TRAINMASTER_ADDRESSING": "emulator",
        "TRAINMASTER_NOTIFICATIONS": "true",
        "TRAINMASTER_WORKER_SERVICE_ACCOUNT": (
            f"trainmaster-worker@{config.project}.iam.gserviceaccount.com"
        ),
        "GOOGLE_CLOUD_PROJECT": config.project,
        "FIRESTORE_EMULATOR_HOST": endpoints.firestore,
        "PUBSUB_EMULATOR_HOST": endpoints.pubsub,
        "STORAGE_EMULATOR_HOST": f"http://{endpoints.storage}",
        "TRAINMASTER_METRICS": config.metrics,
        "TRAINMASTER_LOGGING_ENDPOINT": f"http://{endpoints.logging}",
        "TRAINMASTER_MONITORING_ENDPOINT": f"http://{endpoints.monitoring}",
    }
    if creates_vms:
        agent = agent_object(agent_archive(compiled=True))
        variables["TRAINMASTER_AGENT"] = f"gs://{config.stage_bucket}/{agent}"
    if config.gcs:
        variables["TRAINMASTER_GCSFUSE"] = f"gs://{config.stage_bucket}/{gcsfuse_object()}"
    if endpoints.compute:
        variables["TRAINMASTER_COMPUTE_ENDPOINT"] = f"http://{endpoints.compute}"
        variables["TRAINMASTER_TPU_ENDPOINT"] = f"http://{endpoints.compute}"
        variables["TRAINMASTER_TPU"] = "true"
        variables["TRAINMASTER_IDENTITY_KEYS"] = f"http://{endpoints.compute}/emulator/v1/certs"
    if endpoints.iam:
        services = ("IAM", "IAM_ACCOUNTS", "IAM_PEOPLE", "IAM_TOKENS", "SECRETS", "REGISTRY")
        variables |= {
            f"TRAINMASTER_{service}_ENDPOINT": f"http://{endpoints.iam}" for service in services
        }
    return variables | config.settings


def vm_environment(state_dir: Path, config: StackConfig, endpoints: Endpoints) -> dict[str, str]:
    """Return the variables that direct the programs of a VM to this stack instead of Google Cloud.

    TensorFlow's `gs://` client uses curl and reads `CURL_CA_BUNDLE` for every call. A call takes 2
    ms with our authority alone and 6.5 ms with all of the machine's authorities (measured), so that
    bundle holds only ours. Other TLS calls of programs go through Python's requests or its default
    SSL context, which get the full bundle.
    """
    proxy_dir = state_dir / PROXY_DIR
    variables = {
        **cloud_sdk_environment(state_dir, config, endpoints),
        "PUBSUB_EMULATOR_HOST": endpoints.pubsub,
        "STORAGE_EMULATOR_HOST": f"http://{endpoints.storage}",
        # google-cloud-logging then calls the proxy, which serves HTTP.
        "GOOGLE_CLOUD_DISABLE_GRPC": "true",
        # Gcsfs would ask the emulator by gRPC, and retry for a minute.
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "TRAINMASTER_LOGGING_ENDPOINT": f"http://{endpoints.logging}",
        "TRAINMASTER_MONITORING_ENDPOINT": f"http://{endpoints.monitoring}",
        "TRAINMASTER_PUBSUB_ENDPOINT": f"http://{endpoints.pubsub}",
        **processes.proxy_exceptions(endpoints.addresses(), base={}),
    }
    if endpoints.compute:
        variables["TRAINMASTER_TPU_ENDPOINT"] = f"http://{endpoints.compute}"
    if endpoints.iam:
        variables["TRAINMASTER_SECRETS_ENDPOINT"] = f"http://{endpoints.iam}"
    if endpoints.proxy:
        variables |= {
            "https_proxy": f"http://{endpoints.proxy}",
            "CURL_CA_BUNDLE": str(proxy_dir / "ca-cert.pem"),
            "REQUESTS_CA_BUNDLE": str(proxy_dir / "ca.pem"),
            "SSL_CERT_FILE": str(proxy_dir / "ca.pem"),
        }
    return variables


def export_lines(variables: dict[str, str]) -> str:
    """Return shell code for `eval "$(…)"` in any POSIX shell.

    Raises StackError for a name that is no variable's, because it would be code.
    """
    for name in variables:
        if not _VARIABLE.fullmatch(name):
            raise StackError(f"{name!r} is no name of an environment variable")
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
