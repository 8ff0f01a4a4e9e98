"""Resolve the programs of the worker pools of a CustomJob, the job of Vertex AI.

All pools run containers, or all run Python packages in one runtime. An executor image is a prebuilt
image of Vertex AI's: it selects the runtime, and `keep_keras_2` sets a variable for programs that
were written for one with Keras 2.
"""

from __future__ import annotations

from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Container, Program, Variable
from trainmaster.jobspec.catalog.runtimes import CONTAINER_HOST, Runtime
from trainmaster.jobspec.fields.container_images import (
    check_image,
    note_prebuilt_image,
    runtime_of_prebuilt_image,
)
from trainmaster.jobspec.fields.environment_variables import resolve_pool_variables
from trainmaster.jobspec.fields.programs import check_module, check_packages, require
from trainmaster.jobspec.fields.runtime_version import keep_keras_2, runtime_for, runtime_label
from trainmaster.jobspec.formats.vertex import ContainerSpec, PythonPackageSpec, WorkerPoolSpec
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.field_names import JOB_SPEC


class PoolPrograms:
    """Collects the program of each pool; the first pool decides the runtime of the job."""

    def __init__(self, common: tuple[Variable, ...], problems: Problems, *, on_tpu: bool) -> None:
        self.by_type: dict[TaskType, Program] = {}
        self.runtime: Runtime = CONTAINER_HOST
        self._runtime_path: FieldPath = (JOB_SPEC, "workerPoolSpecs")
        self._on_tpu = on_tpu
        self._common = common
        self._problems = problems

    def add(self, pool: WorkerPoolSpec, task_type: TaskType, path: FieldPath) -> None:
        """Add the program of a pool, and problems of its fields. `path`: the field of the pool."""
        container = pool.container_spec
        container_path = (*path, "containerSpec")
        package = pool.python_package_spec
        package_path = (*path, "pythonPackageSpec")
        if container is not None and package is not None:
            problem = (
                f"cannot be combined with {self._problems.spelled_path(container_path)}: a pool"
                " runs one of them"
            )
            self._problems.add_text(package_path, problem, advice="leave one of them out")
        elif container is not None:
            self._set_runtime(CONTAINER_HOST, container_path)
            self.by_type[task_type] = self._container_program(container, container_path)
        elif package is not None:
            program = {task_type: self._package_program(package, package_path)}
            image_path = (*package_path, "executorImageUri")
            self.by_type |= keep_keras_2(
                program, image_path, package.executor_image_uri or "", self._problems
            )
        elif not self._problems.has_any_at(container_path, package_path):
            require(None, container_path, self._problems)

    def _container_program(self, spec: ContainerSpec, path: FieldPath) -> Program:
        require(spec.image_uri, (*path, "imageUri"), self._problems)
        if spec.image_uri is not None:
            check_image(spec.image_uri, (*path, "imageUri"), self._problems)
        variables = resolve_pool_variables(
            spec.env, self._common, (*path, "env"), self._problems, in_container=True
        )
        container = Container(spec.image_uri or "", spec.command)
        return Program(
            package_uris=(),
            python_module="",
            args=spec.args,
            job_dir=None,
            container=container,
            environment=variables,
        )

    def _package_program(self, spec: PythonPackageSpec, path: FieldPath) -> Program:
        module = spec.python_module
        check_packages(spec.package_uris, (*path, "packageUris"), self._problems)
        check_module(module, (*path, "pythonModule"), self._problems)
        self._use_executor_image(spec.executor_image_uri, (*path, "executorImageUri"))
        variables = resolve_pool_variables(spec.env, self._common, (*path, "env"), self._problems)
        return Program(
            spec.package_uris, module or "", spec.args, job_dir=None, environment=variables
        )

    def _use_executor_image(self, image: str | None, path: FieldPath) -> None:
        require(image, path, self._problems)
        if image is None:
            return
        version = runtime_of_prebuilt_image(image)
        if version is None:
            problem = (
                f"must be one of Google's prebuilt training images, not {quoted(image)}; to use"
                " another image, put the package into it and use containerSpec"
            )
            self._problems.add(
                path,
                problem,
                example="us-docker.pkg.dev/vertex-ai/training/tf-gpu.2-17.py310:latest",
            )
            return
        runtime = runtime_for(version, path, self._problems, on_tpu=self._on_tpu)
        self._set_runtime(runtime, path)
        if runtime == self.runtime:
            note_prebuilt_image(image, runtime_label(version, runtime), path, self._problems)

    def _set_runtime(self, runtime: Runtime, path: FieldPath) -> None:
        """Set the job's runtime at the first pool; add a problem if a later pool differs."""
        if not self.by_type:
            self.runtime = runtime
            self._runtime_path = path
        elif runtime != self.runtime:
            first = self._problems.spelled_path(self._runtime_path)
            problem = f"selects the runtime {runtime.name}, but {first} selects {self.runtime.name}"
            self._problems.add_text(path, problem, advice="the same kind of spec in all pools")
