"""Who may call the API: IAM has no permissions of our own, so a service account stands for it.

The account has no role anywhere, and nothing runs as it. Its IAM policy is the list of callers: a
caller who may act as the account may change jobs, and a caller who may read it may read jobs. No
role of another service includes that, such as `roles/aiplatform.user`. Someone who may act as all
accounts of the project could act as those of the functions, too.
docs/decisions/0008-the-old-services-api.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trainmaster.core.model.installation import name_in_installation

ACCOUNT: Final = "trainmaster-callers"
READ: Final = "iam.serviceAccounts.get"
CHANGE: Final = "iam.serviceAccounts.actAs"
_READING: Final = (".get", ".list", ".getConfig", ".getIamPolicy")


def callers_account(project: str, installation: str | None = None) -> str:
    """Return the account's address.

    `installation`: its name; None: this one's.
    """
    return f"{name_in_installation(ACCOUNT, installation)}@{project}.iam.gserviceaccount.com"


def permissions_on_account(permissions: Iterable[str]) -> Mapping[str, str]:
    """Return each permission of the API → the permission on the account that grants it."""
    return {name: READ if name.endswith(_READING) else CHANGE for name in permissions}
