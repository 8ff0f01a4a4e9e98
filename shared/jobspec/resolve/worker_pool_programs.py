"""What each of a CustomJob's worker pools runs. All run containers, or all run Python packages in one runtime."""

from __future__ import annotations

from shared.core.model.job import Container, Program, Substitution, Variable
from shared.core.model.replica_id import TaskType
from shared.jobspec.catalog.runtimes import CONTAINER_HOST, Runtime
from shared.jobspec.fields.container_images import check_image, instead_of, prebuilt_version
from shared.jobspec.fields.environment_variables import pool_variables
from shared.jobspec.fields.programs import check_module, check_packages, require
from shared.jobspec.fields.runtime_version import name_of, runtime_of
from shared.jobspec.formats.vertex import ContainerSpec, PythonPackageSpec, WorkerPoolSpec
from shared.jobspec.reading.document_kinds import JOB_SPEC
from shared.jobspec.reading.problems import Findings, Loc, given


class PoolPrograms:
    def __init__(
        self, common: tuple[Variable, ...], found: Findings, substitutions: list[Substitution], *, on_tpu: bool
    ) -> None:
        self.by_type: dict[TaskType, Program] = {}
        self.runtime: Runtime = CONTAINER_HOST
        self._runtime_at: Loc = (JOB_SPEC, "workerPoolSpecs")
        self._on_tpu = on_tpu
        self._common = common
        self._found = found
        self._substitutions = substitutions

    def add(self, pool: WorkerPoolSpec, task_type: TaskType, at: Loc) -> None:
        container_at, package_at = (*at, "containerSpec"), (*at, "pythonPackageSpec")
        container, package = pool.container_spec, pool.python_package_spec
        if container is not None and package is not None:
            problem = f"does not go with {self._found.path(container_at)}: a pool runs one of them"
            self._found.add_text(package_at, problem, "leave one of them out")
        elif container is not None:
            self._use(CONTAINER_HOST, container_at)
            self.by_type[task_type] = self._container(container, container_at)
        elif package is not None:
            self.by_type[task_type] = self._package(package, package_at)
        elif not self._found.doubtful(container_at, package_at):
            require(None, container_at, self._found)

    def _container(self, spec: ContainerSpec, at: Loc) -> Program:
        require(spec.image_uri, (*at, "imageUri"), self._found)
        if spec.image_uri is not None:
            check_image(spec.image_uri, (*at, "imageUri"), self._found)
        variables = pool_variables(spec.env or (), self._common, (*at, "env"), self._found)
        container = Container(spec.image_uri or "", spec.command or ())
        return Program((), "", spec.args or (), None, container, variables)

    def _package(self, spec: PythonPackageSpec, at: Loc) -> Program:
        packages, module = spec.package_uris or (), spec.python_module
        require(packages, (*at, "packageUris"), self._found)
        check_packages(packages, (*at, "packageUris"), self._found)
        require(module, (*at, "pythonModule"), self._found)
        if module is not None:
            check_module(module, (*at, "pythonModule"), self._found)
        self._execute_in(spec.executor_image_uri, (*at, "executorImageUri"))
        variables = pool_variables(spec.env or (), self._common, (*at, "env"), self._found)
        return Program(packages, module or "", spec.args or (), None, environment=variables)

    def _execute_in(self, image: str | None, at: Loc) -> None:
        require(image, at, self._found)
        if image is None:
            return
        version = prebuilt_version(image)
        if version is None:
            problem = (
                f"is not one of Google's prebuilt images, and packages run in no other: {given(image)}; "
                "put the package into the image and use containerSpec"
            )
            self._found.add(at, problem, "us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest")
            return
        runtime = runtime_of(version, at, self._found, on_tpu=self._on_tpu)
        if self._use(runtime, at):
            self._substitutions.append(instead_of(image, name_of(version, runtime), at, self._found))

    def _use(self, runtime: Runtime, at: Loc) -> bool:
        """Whether it is the job's runtime, which the first pool decides."""
        if not self.by_type:
            self.runtime, self._runtime_at = runtime, at
        elif runtime != self.runtime:
            problem = f"makes the runtime {runtime.name}, but {self._found.path(self._runtime_at)} {self.runtime.name}"
            self._found.add_text(at, f"{problem}: all pools have the same", "the same kind of spec in all pools")
        return runtime == self.runtime
