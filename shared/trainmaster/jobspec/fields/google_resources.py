"""Names of Google Cloud resources in a job: service account, network, encryption key.

Only their form is checked.
"""

from __future__ import annotations

import re
from typing import Final

from trainmaster.jobspec.catalog.regions import REGION_ZONES
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.document_kinds import example_at

PROJECT: Final = r"projects/[a-z0-9][a-z0-9:.-]{0,62}"

EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_NETWORK: Final = re.compile(rf"{PROJECT}/global/networks/[a-z]([-a-z0-9]{{0,61}}[a-z0-9])?")
_KMS_KEY: Final = re.compile(
    rf"{PROJECT}/locations/(?P<location>[a-z0-9-]+)"
    r"/keyRings/[A-Za-z0-9_-]{1,63}/cryptoKeys/[A-Za-z0-9_-]{1,63}"
)


def check_service_account(account: str | None, path: FieldPath, problems: Problems) -> None:
    """Check that the account is an e-mail address; None: the job names none."""
    if account is not None and not EMAIL.fullmatch(account):
        rule = "must be the e-mail address of a service account"
        problems.add(path, f"{rule}, not {quoted(account)}", example=example_at(path))


def check_network(network: str | None, path: FieldPath, problems: Problems) -> None:
    """Check the full name of a VPC network; None: the job names none."""
    if network is not None and not _NETWORK.fullmatch(network):
        rule = "must be projects/NUMBER/global/networks/NAME"
        problems.add(path, f"{rule}, not {quoted(network)}", example=example_at(path))


def check_kms_key(key: str | None, region: str | None, path: FieldPath, problems: Problems) -> None:
    """Check the name of the key, and that it is in the region of the disks that it encrypts.

    Source: both APIs.
    """
    if key is None:
        return
    match = _KMS_KEY.fullmatch(key)
    if match is None:
        rule = "must be projects/P/locations/REGION/keyRings/RING/cryptoKeys/KEY"
        problems.add(path, f"{rule}, not {quoted(key)}", example=example_at(path))
    elif region in REGION_ZONES and match["location"] != region:
        example = key.replace(f"/locations/{match['location']}/", f"/locations/{region}/")
        problems.add(
            path,
            f"must be in the job's region {region}, not in {match['location']}",
            example=example,
        )
