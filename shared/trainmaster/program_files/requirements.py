"""What a program requires that its runtime does not have: pinned versions, and modules of packages
that nobody installs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from trainmaster.agent.setup.framework_builds import FRAMEWORKS, normalize
from trainmaster.core.model.plan import Plan
from trainmaster.core.rules.module_packages import package_of
from trainmaster.jobspec.catalog.runtimes import RUNTIME_DEFAULT, RUNTIMES, TPU_PYTHON
from trainmaster.jobspec.catalog.service_packages import package_name
from trainmaster.program_files.findings import ProgramFiles, ProgramFinding, may_fail, must_fail
from trainmaster.program_files.import_names import is_in_runtime, packages_with
from trainmaster.program_files.source_files import Entry, Import, Sources

_PATCH_RELEASES: Final = 100
"""A runtime's `==2.13.*` is tried as 2.13.0 to 2.13.99."""
_REMOVED_IN_312: Final = {"asynchat", "asyncore", "distutils", "imp", "smtpd"}
"""Source: "What's New In Python 3.12". Every runtime has setuptools, which brings `distutils`."""
_LOCAL_VERSION: Final = re.compile(r"\+[\w.]+")
"""Name of a build behind a version: `+cu121`. Source: PEP 440."""
PYTORCH: Final = "torch"


@dataclass(frozen=True, slots=True)
class RuntimePackages:
    """What a VM has before the job's packages are installed."""

    name: str
    """Value of `runtimeVersion`."""
    python: str
    """Version such as 3.12; empty if it is not known, because the boot image is the user's own."""
    requirements: tuple[str, ...]
    """Requirements such as `torch==2.13.*`."""

    @property
    def names(self) -> frozenset[str]:
        """Normalized names."""
        return frozenset(normalize(package_name(entry)) for entry in self.requirements)


def runtime_of(plan: Plan) -> RuntimePackages:
    """Return what the VMs of a job have."""
    version = next(
        (
            version
            for version, runtime in RUNTIMES.items()
            if plan.image.packages in (runtime.packages, runtime.tpu_packages)
        ),
        RUNTIME_DEFAULT,
    )
    python = RUNTIMES[version].python if plan.image.source == RUNTIMES[version].image else ""
    if any(group.tpu for group in plan.groups):
        python = TPU_PYTHON
    return RuntimePackages(version, python, plan.image.packages)


def check_pins(
    requirements: Sequence[str], runtime: RuntimePackages, place: str
) -> Iterator[ProgramFinding]:
    """Yield the requirements that exclude the runtime's own build of a framework.

    The agent lets no package replace it: see `trainmaster.agent.setup.framework_builds`. `place`:
    where the requirements are, such as requirements.txt.
    """
    versions = _framework_versions(runtime)
    for text in requirements:
        requirement = _parsed(text)
        if requirement is None:
            yield may_fail(f"{place}: {text!r} is not a requirement", "write it as pandas==2.3")
            continue
        if not _applies(requirement, runtime):
            continue
        version = versions.get(normalize(requirement.name))
        has_local_version = "+" in str(requirement.specifier)
        if version is None:
            if has_local_version:
                yield may_fail(
                    f"{place}: {text} is a build that PyPI does not have",
                    "leave out what follows the version, from +, unless your package index has it",
                )
            continue
        of_runtime = f"of the runtime {runtime.name}, which no package may replace"
        remedy = f"remove it from {place}, or choose another runtime: `trainmaster runtimes`"
        releases = [f"{version}.{patch}" for patch in range(_PATCH_RELEASES)]
        public = SpecifierSet(_LOCAL_VERSION.sub("", str(requirement.specifier)))
        if not any(public.contains(release) for release in releases):
            name = f"{requirement.name} {version}"
            yield must_fail(f"{place}: {text} excludes {name} {of_runtime}", remedy)
        elif has_local_version or requirement.url:
            name = f"{requirement.name} {version}"
            yield may_fail(
                f"{place}: {text} is another build of {name} than that {of_runtime}", remedy
            )


def _markers_of_vm(runtime: RuntimePackages) -> dict[str, str]:
    """Return the environment of a VM for the markers of requirements, which are evaluated on the
    user's machine otherwise. Source: PEP 508.
    """
    python = runtime.python
    versions = {"python_version": python, "python_full_version": f"{python}.0"} if python else {}
    return {
        **versions,
        "extra": "",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
    }


def check_imports(
    sources: Sources,
    entry: Entry,
    files: ProgramFiles,
    requirements: Sequence[str],
    runtime: RuntimePackages,
    place: str,
) -> Iterator[ProgramFinding]:
    """Yield the imports that neither the files nor the requirements nor the runtime satisfy.

    They are warnings (`may_fail`): a requirement may bring more packages than its own. `place`:
    where the requirements are.
    """
    required = {_required_name(text, runtime) for text in requirements}
    own = _own_modules(files)
    reported: set[str] = set()
    for file in sorted(sources.closure(entry, certain_only=False)):
        for imported in sources.imports(file, entry):
            module = imported.module.partition(".")[0]
            is_relative = module == ""
            if is_relative or module in own or module in reported:
                continue
            is_required = bool(packages_with(module) & required)
            if is_required or is_standard(module, runtime):
                continue
            if not is_in_runtime(module, runtime.names):
                reported.add(module)
                yield _left_out(imported, module, files) or _missing(
                    imported, module, runtime, place
                )


def _parsed(text: str) -> Requirement | None:
    """Return a requirement; None if the text is none."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def _applies(requirement: Requirement, runtime: RuntimePackages) -> bool:
    """Return whether pip installs the requirement on the VM: its marker holds, and it is of no
    extra.
    """
    marker = requirement.marker
    try:
        return marker is None or marker.evaluate(_markers_of_vm(runtime))
    except ValueError:  # it compares what cannot be compared
        return True


def _required_name(text: str, runtime: RuntimePackages) -> str:
    """Return the normalized name of a requirement; empty if pip does not install it."""
    requirement = _parsed(text)
    if requirement is None:  # its name may be right nevertheless
        return normalize(re.split(r"[^\w.-]", text, maxsplit=1)[0])
    return normalize(requirement.name) if _applies(requirement, runtime) else ""


def _left_out(imported: Import, module: str, files: ProgramFiles) -> ProgramFinding | None:
    """Return the finding about a module that the user has, but that the VM does not get; None for
    any other module.
    """
    for name, left_out in sorted(files.left_out.items()):
        if PurePosixPath(name).name in (module, f"{module}.py"):
            return may_fail(
                f"{imported.file}:{imported.line} imports {module}, but {name} is left out"
                f" ({left_out.why})",
                f"{left_out.remedy}, unless another package brings {module}",
            )
    return None


def _missing(imported: Import, module: str, runtime: RuntimePackages, place: str) -> ProgramFinding:
    """Return the finding about a module that nothing brings, with what to do about it."""
    package = package_of(module)
    where = f"{imported.file}:{imported.line} imports {module}"
    add = f"add {package} to {place}"
    if module in _REMOVED_IN_312:
        return may_fail(f"{where}, which Python {runtime.python} no longer has", "replace it")
    others = [
        version
        for version, other in RUNTIMES.items()
        if normalize(package) in {normalize(package_name(entry)) for entry in other.packages}
    ]
    if others:
        return may_fail(
            f"{where}, and the runtime {runtime.name} has no {package}",
            f"choose --runtime-version {others[-1]}, or {add}",
        )
    return may_fail(
        f"{where}, which neither the runtime {runtime.name} nor {place} names",
        f"{add}, unless another package brings it",
    )


def is_standard(module: str, runtime: RuntimePackages) -> bool:
    """Return whether a module belongs to Python itself.

    `distutils` always does: every runtime's setuptools brings it.
    """
    if module == "distutils":
        return True
    has_all = runtime.python in ("", "3.10", "3.11")
    was_removed = module in _REMOVED_IN_312 and not has_all
    return module in sys.stdlib_module_names and not was_removed


def _own_modules(files: ProgramFiles) -> set[str]:
    """Return the names of all files and folders: the program may search any folder for modules."""
    own: set[str] = set()
    for name in files.names:
        *folders, file = name.split("/")
        own |= set(folders)
        own.add(file.partition(".")[0])
    return own


def _framework_versions(runtime: RuntimePackages) -> dict[str, str]:
    """Return package → version of the runtime's frameworks, which no package may replace: `2.13`
    for `torch==2.13.*`, by the name of each build of the framework.
    """
    versions: dict[str, str] = {}
    for requirement in runtime.requirements:
        name = normalize(package_name(requirement))
        version = requirement.partition("==")[2].removesuffix(".*")
        for builds in FRAMEWORKS:
            # The agent lets a build for accelerators replace one for CPUs.
            if name in builds and version and not name.endswith("-cpu"):
                versions |= dict.fromkeys(builds, version)
    return versions
