"""The remedies for errors of Google's, before and after the installation."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from trainmaster.cli.doctor.findings import CREATE_IT
from trainmaster.gcp.tools.inspection import InspectionError

LOG_IN: Final = "log in: gcloud auth application-default login"
ASK_FOR_API: Final = (
    "ask who runs Terraform for an entry in `api_users` of infra/; to read jobs only, in"
    " `api_viewers`"
)
SEE_WHETHER_IT_EXISTS: Final = (
    "check that it exists and can be reached, and run `trainmaster doctor` again"
)


@dataclass(frozen=True, slots=True)
class Remedies:
    """The remedies in one project."""

    project: str
    before_install: bool
    """Whether Terraform has not created anything yet."""

    def of(self, error: InspectionError) -> str:
        if error.status == HTTPStatus.UNAUTHORIZED:
            return LOG_IN
        if error.disabled_api:
            return self._enable(error.disabled_api)
        if error.status == HTTPStatus.FORBIDDEN:
            return self.refused
        if error.status == HTTPStatus.NOT_FOUND and not self.before_install:
            return CREATE_IT
        return SEE_WHETHER_IT_EXISTS

    @property
    def refused(self) -> str:
        return f"get roles/viewer on the project {self.project}"

    def _enable(self, api: str) -> str:
        if self.before_install:
            return f"`gcloud services enable {api} --project {self.project}`, and wait two minutes"
        return "run `terraform apply` in infra/, which enables it"
