"""Whose lines the entries in Cloud Logging are, for `cloud_log.py`: the name of the log, labels and
monitored resource, as AI Platform Training wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainmaster.agent.model.vm_config import AgentIdentity


@dataclass(frozen=True)
class LogOrigin:
    """The replica whose lines these are."""

    log_name: str
    """Full name of the log: ``projects/PROJECT/logs/LOG``."""
    project: str
    region: str
    job_id: str
    task_name: str
    """Role and task index, as AI Platform Training wrote them: ``worker-replica-1``."""
    trial_id: str
    """Empty if the job is not a trial."""
    instance_id: str
    """Id of the machine: each host of a TPU slice writes its own lines."""

    @staticmethod
    def of(identity: AgentIdentity) -> LogOrigin | None:
        """Return the origin of this replica's lines; None if its output is not copied."""
        config = identity.config
        if config.log is None:
            return None
        return LogOrigin(
            log_name=config.log["name"],
            project=config.project,
            region=config.log["region"],
            job_id=config.environment.get("CLOUD_ML_JOB_ID", config.job_id),
            task_name=f"{config.log['task']}-{identity.index}",
            trial_id=config.environment.get("CLOUD_ML_TRIAL_ID", ""),
            instance_id=identity.instance.instance_id,
        )

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all entries of this replica."""
        labels = {
            "ml.googleapis.com/job_id": self.job_id,
            "ml.googleapis.com/task_name": self.task_name,
            "trainmaster/vm": self.instance_id,
        }
        if self.trial_id:
            labels["ml.googleapis.com/trial_id"] = self.trial_id
        return labels

    @property
    def resources(self) -> list[Mapping[str, object]]:
        """Monitored resources, the preferred one first.

        Clients of AI Platform Training filter by its type, `ml_job`. Projects that may not write
        that type get `generic_task`, which any project may write.
        """
        ml_job = {"project_id": self.project, "job_id": self.job_id, "task_name": self.task_name}
        generic_task = {
            "project_id": self.project,
            "location": self.region,
            "namespace": self.log_name.rpartition("/")[2],
            "job": self.job_id,
            "task_id": self.task_name,
        }
        return [
            {"type": "ml_job", "labels": ml_job},
            {"type": "generic_task", "labels": generic_task},
        ]
