"""The smoke test on Google Cloud: install with Terraform into a state of its own, and destroy
everything.

    build/smoke/PROJECT/infra/   a copy of infra/ with the state of this run

The state of a user's installation is neither read nor written. The folder is deleted when
everything has been destroyed.

The resources have the same names as in every installation. The test therefore refuses a project
that has an installation or a Firestore database, before it creates anything.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from smoke.opening import opened_world
from smoke.world import Commands, Output, ProcessCommands, StepError, World, last_line

ROOT: Final = Path(__file__).parents[1]
COPIED: Final = ("*.tf", ".terraform.lock.hcl")
"""Files of infra/ that the copy has."""
FOLDERS: Final = ("modules", "schemas")
"""Folders of infra/ that it has."""
STATE_FILE: Final = "terraform.tfstate"
APPLY_S: Final = 3_600.0
"""Longest time of one Terraform command."""
IMAGE: Final = "mirror.gcr.io/library/debian:bookworm-slim"
"""Container image of the test's jobs."""
WORKER_RANGE: Final = "10.128.0.0/20"
"""IP addresses of the VMs."""
SECOND_RANGE: Final = "10.132.0.0/20"
"""Those of the VMs in the second region."""
LARGE_REGIONS: Final = (
    "us-central1",
    "us-east1",
    "europe-west1",
    "europe-west4",
    "asia-east1",
    "asia-southeast1",
)
"""Two of each continent: an organisation policy on locations usually names a continent."""
APIS: Final = ("serviceusage", "cloudresourcemanager", "pubsub", "compute", "orgpolicy")
"""What infra/README.md asks for before the first apply."""
APIS_S: Final = 300.0
"""How long the test waits until they work."""
DISABLED: Final = "SERVICE_DISABLED"
"""In gcloud's output: the API is not enabled, so the project has nothing of it."""


def second_region(region: str) -> str:
    """Return a large region of the same continent; empty: none is known."""
    continent = region.partition("-")[0]
    others = (other for other in LARGE_REGIONS if other != region)
    return next((other for other in others if other.startswith(f"{continent}-")), "")


@dataclass(frozen=True)
class GoogleInstallation:
    """An installation in a project that has none."""

    project: str
    region: str
    notify: str
    """E-mail address of the alerts, which infra/ requires."""
    report: Callable[[str], None]
    run: Commands = field(default_factory=lambda: ProcessCommands(variables={}))
    build: Path = ROOT / "build"
    pause_s: float = 10.0
    """Between two looks at an API that was enabled."""
    role_suffix: str = field(default_factory=lambda: f"Smoke{datetime.now(UTC):%Y%m%d%H%M}")
    """Google reserves the ids of the roles that an earlier run deleted."""
    open_world: Callable[..., AbstractContextManager[World]] = opened_world

    @property
    def folder(self) -> Path:
        return self.build / "smoke" / self.project

    @property
    def _infra(self) -> Path:
        return self.folder / "infra"

    @property
    def _variables(self) -> tuple[str, ...]:
        second = second_region(self.region)
        ranges = {self.region: WORKER_RANGE, **({second: SECOND_RANGE} if second else {})}
        return (
            f"-var=project={self.project}",
            f"-var=region={self.region}",
            f"-var=notify={self.notify}",
            f"-var=stage={self.build / 'stage'}",
            f"-var=worker_regions={json.dumps(ranges)}",
            "-var=keep_data=false",
            f"-var=role_suffix={self.role_suffix}",
        )

    @contextmanager
    def running(self) -> Iterator[World]:
        """Install, yield the installation for the steps, and remove everything in any case."""
        self._refuse_used_project()
        self._enable_apis()
        try:
            outputs = self._install()
            with self.open_world(
                self._environment(outputs),
                self.region,
                IMAGE,
                second_region=second_region(self.region),
                is_local=False,
                report=self.report,
            ) as world:
                world.saw("capacity_role", "created")  # the apply would have failed without it
                self._note_invoker_check(world)
                yield world
        finally:
            self.remove()

    def remove(self) -> None:
        """Destroy what the state contains.

        Repeatable; does nothing without a state. Raises StepError.
        """
        if not self._infra.is_dir():
            return
        if not (self._infra / STATE_FILE).exists():  # Terraform has created nothing
            shutil.rmtree(self.folder)
            return
        self.report("removing everything: terraform destroy")
        done = self._terraform("destroy", "-auto-approve", *self._variables)
        if done.status:
            raise StepError(
                f"not everything was removed: {last_line(done.errors)}. Run `make smoke"
                f" PROJECT={self.project} REGION={self.region} REMOVE=1` until it succeeds; the"
                f" state is in {self._infra}"
            )
        shutil.rmtree(self.folder)

    def _refuse_used_project(self) -> None:
        if self._infra.is_dir():
            raise StepError(
                f"an earlier run left resources in {self.project}: remove them with REMOVE=1 first"
            )
        functions = self._check(
            "gcloud",
            "functions",
            "list",
            f"--project={self.project}",
            "--filter=name~/trainmaster-",
            "--format=value(name)",
        )
        databases = self._check(
            "gcloud",
            "firestore",
            "databases",
            "list",
            f"--project={self.project}",
            "--format=value(name)",
        )
        if functions.strip():
            raise StepError(
                f"{self.project} has an installation of Trainmaster: use a project without one"
            )
        if any(name.endswith("(default)") for name in databases.split()):
            raise StepError(
                f"{self.project} has a Firestore database (default): use a project without one"
            )

    def _enable_apis(self) -> None:
        """Do what infra/README.md asks for before the first apply.

        Enabled APIs work after a minute or more.
        """
        self.report("enabling the first APIs")
        project = f"--project={self.project}"
        services = [f"{api}.googleapis.com" for api in APIS]
        self._check("gcloud", "services", "enable", *services, project)
        self._check(
            "gcloud",
            "beta",
            "services",
            "identity",
            "create",
            "--service=pubsub.googleapis.com",
            project,
        )
        deadline = time.monotonic() + APIS_S
        while True:
            done = self.run("gcloud", "compute", "regions", "describe", self.region, project)
            if DISABLED not in done.errors or time.monotonic() > deadline:
                break
            time.sleep(self.pause_s)
        if done.status:
            raise StepError(
                f"gcloud compute regions describe {self.region}: {last_line(done.errors)}"
            )

    def _install(self) -> dict[str, str]:
        self._infra.mkdir(parents=True)
        source = ROOT / "infra"
        for pattern in COPIED:
            for path in source.glob(pattern):
                shutil.copy(path, self._infra)
        for name in FOLDERS:
            shutil.copytree(source / name, self._infra / name)
        self.report("installing: terraform apply, which takes ten to twenty minutes")
        for words in (("init",), ("apply", "-auto-approve", *self._variables)):
            done = self._terraform(*words)
            if done.status:
                raise StepError(f"terraform {words[0]}: {last_line(done.errors)}")
        outputs = json.loads(self._check("terraform", f"-chdir={self._infra}", "output", "-json"))
        return {name: str(output["value"]) for name, output in outputs.items()}

    def _environment(self, outputs: dict[str, str]) -> dict[str, str]:
        return {
            "TRAINMASTER_PROJECT": self.project,
            "TRAINMASTER_BUCKET": outputs["bucket"],
            "TRAINMASTER_WORKER_SERVICE_ACCOUNT": (
                f"trainmaster-worker@{self.project}.iam.gserviceaccount.com"
            ),
            "TRAINMASTER_API_ENDPOINT": outputs["api"],
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": f"{outputs['api']}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{outputs['api']}/",
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        }

    def _note_invoker_check(self, world: World) -> None:
        """Record whether Cloud Run checks the callers of `api` itself, for the table of
        assumptions.
        """
        command = ["gcloud", "run", "services", "describe", "trainmaster-api"]
        options = [f"--project={self.project}", f"--region={self.region}", "--format=json"]
        described = world.check(*command, *options)
        annotations = json.loads(described).get("metadata", {}).get("annotations", {})
        is_off = annotations.get("run.googleapis.com/invoker-iam-disabled") == "true"
        world.saw("invoker_check", "off" if is_off else "on")

    def _terraform(self, verb: str, *words: str) -> Output:
        return self.run(
            "terraform", f"-chdir={self._infra}", verb, "-input=false", *words, timeout_s=APPLY_S
        )

    def _check(self, *argv: str) -> str:
        """Return the output of a command. Raises StepError if it fails."""
        done = self.run(*argv)
        if DISABLED in done.errors and "list" in argv:
            return ""  # an API that is not enabled has nothing to list
        if done.status:
            raise StepError(f"{' '.join(argv[:4])}: {last_line(done.errors)}")
        return done.text
