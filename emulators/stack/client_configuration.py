"""What makes the real clients (client libraries, gcloud, gsutil) speak to this stack, and to nothing of the user's.

gcloud and gsutil get configuration, credentials and state of their own under `clients/`, so that neither the user's
login nor a half-finished upload of another stack plays a part.
"""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path
from typing import Final

from emulators.services import iam
from emulators.stack.processes import LOOPBACK
from emulators.stack.state import STATE_DIR_VARIABLE, Endpoints, StackConfig, StackState

CLIENTS: Final = "clients"
# gcloud sends no request without one; only the api asks whose it is.
TOKEN: Final = iam.OWNER


def write_configuration(state_dir: Path, config: StackConfig, endpoints: Endpoints) -> None:
    folder = state_dir / CLIENTS
    for name in ("gcloud", "gsutil"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "token").write_text(TOKEN + "\n", encoding="utf-8")
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
        # One process: gsutil's parallel uploads talk to the real service's limits, and take two seconds to start.
        "parallel_process_count": "1",
    }
    with (folder / "boto").open("w", encoding="utf-8") as file:
        boto.write(file)


def environment(state_dir: Path, state: StackState) -> dict[str, str]:
    """The variables `trainmaster local env` exports."""
    config, endpoints, folder = state.config, state.endpoints, state_dir / CLIENTS
    variables = {
        **application_environment(config, endpoints),
        STATE_DIR_VARIABLE: str(state_dir),
        "CLOUDSDK_CONFIG": str(folder / "gcloud"),
        "CLOUDSDK_CORE_PROJECT": config.project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        "CLOUDSDK_CORE_PASS_CREDENTIALS_TO_GSUTIL": "0",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(folder / "token"),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"http://{endpoints.storage}/storage/v1/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_PUBSUB": f"http://{endpoints.pubsub}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_FIRESTORE": f"http://{endpoints.firestore}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_LOGGING": f"http://{endpoints.logging}/",
        "BOTO_CONFIG": str(folder / "boto"),
    }
    if endpoints.compute:
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE"] = f"http://{endpoints.compute}/compute/v1/"
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU"] = f"http://{endpoints.compute}/"
    if endpoints.api:
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_ML"] = f"http://{endpoints.api}/"
        variables["CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM"] = f"http://{endpoints.api}/"
    return variables


def application_environment(config: StackConfig, endpoints: Endpoints) -> dict[str, str]:
    """The settings of `docs/interfaces.md` section 5: what the functions get, and any program that uses our library."""
    variables = {
        "TRAINMASTER_PROJECT": config.project,
        "TRAINMASTER_BUCKET": config.bucket,
        "TRAINMASTER_ADDRESSING": "emulator",
        "TRAINMASTER_WORKER_SERVICE_ACCOUNT": f"trainmaster-worker@{config.project}.iam.gserviceaccount.com",
        "GOOGLE_CLOUD_PROJECT": config.project,
        "FIRESTORE_EMULATOR_HOST": endpoints.firestore,
        "PUBSUB_EMULATOR_HOST": endpoints.pubsub,
        "STORAGE_EMULATOR_HOST": f"http://{endpoints.storage}",
        "TRAINMASTER_LOGGING_ENDPOINT": f"http://{endpoints.logging}",
    }
    if endpoints.compute:
        variables["TRAINMASTER_COMPUTE_ENDPOINT"] = f"http://{endpoints.compute}"
        variables["TRAINMASTER_TPU_ENDPOINT"] = f"http://{endpoints.compute}"
        variables["TRAINMASTER_TPU"] = "true"
        variables["TRAINMASTER_IDENTITY_KEYS"] = f"http://{endpoints.compute}/emulator/v1/certs"
    if endpoints.iam:
        variables["TRAINMASTER_IAM_ENDPOINT"] = f"http://{endpoints.iam}"
        variables["TRAINMASTER_IAM_ACCOUNTS_ENDPOINT"] = f"http://{endpoints.iam}"
        variables["TRAINMASTER_IAM_PEOPLE_ENDPOINT"] = f"http://{endpoints.iam}"
    return variables


def vm_environment(endpoints: Endpoints, proxy_dir: Path) -> dict[str, str]:
    """What a VM's programs need to find this stack where on Google Cloud they would find Google.

    TensorFlow reads its bundle anew for every call: with our authority alone a call takes 2 ms, with all of the
    machine's 6.5 ms [measured]. Whatever else a program asks over TLS, it asks with Python's requests.
    """
    variables = {
        "PUBSUB_EMULATOR_HOST": endpoints.pubsub,
        "STORAGE_EMULATOR_HOST": f"http://{endpoints.storage}",
        "TRAINMASTER_LOGGING_ENDPOINT": f"http://{endpoints.logging}",
        "no_proxy": f"{LOOPBACK},localhost",
    }
    if endpoints.compute:
        variables["TRAINMASTER_TPU_ENDPOINT"] = f"http://{endpoints.compute}"
    if endpoints.proxy:
        variables |= {
            "https_proxy": f"http://{endpoints.proxy}",
            "CURL_CA_BUNDLE": str(proxy_dir / "ca-cert.pem"),
            "REQUESTS_CA_BUNDLE": str(proxy_dir / "ca.pem"),
        }
    return variables


def exports(variables: dict[str, str]) -> str:
    """For `eval "$(…)"` in any POSIX shell."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
