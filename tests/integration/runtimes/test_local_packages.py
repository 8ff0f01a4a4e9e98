"""On a VM of each local runtime, every declared package has today's version; heavy: can be
imported, and computes.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from trainmaster.agent.setup import runtime_packages
from trainmaster.agent.setup.framework_builds import normalize
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.jobspec.catalog.service_packages import SERVICE_PACKAGES, package_name
from trainmaster.program_files import import_names
from trainmaster.program_files.import_names import is_in_runtime
from trainmaster_emulators.machines.vm_python import create_overlay
from trainmaster_emulators.stack.runtime_images import STAMP
from trainmaster_local.cli.images import COMPANIONS

IMAGES = Path(__file__).parents[3] / ".images"
RUNTIME_OF = {
    "tensorflow": "2.21",
    "scikit-learn": "scikit-learn-1.9",
    "pytorch": "pytorch-2.13",
    "xgboost": "xgboost-3.2",
}
"""Runtime on the local stack → runtime version."""
NAMES = (*RUNTIME_OF, "jax")
CALLS = {
    "PIL": "__import__('PIL.Image'); PIL.Image.new('L', (2, 2)).tobytes()",
    "h5py": "h5py.File('x', 'w', driver='core', backing_store=False).create_dataset('a', data=[1])",
    "jax": "jax.numpy.ones(2).sum().item()",
    "numpy": "numpy.linalg.inv(numpy.eye(2))",
    "pandas": "pandas.DataFrame({'a': [1]}).sum()",
    "scipy": "__import__('scipy.stats'); scipy.stats.norm.cdf(0)",
    "sklearn": (
        "__import__('sklearn.linear_model'); sklearn.linear_model.LinearRegression().fit([[1]],"
        " [1])"
    ),
    "tensorflow": "tensorflow.linalg.inv([[1.0]]).numpy()",
    "tf_keras": "tf_keras.Sequential([tf_keras.layers.Dense(1)])(tf_keras.backend.ones((1, 2)))",
    "torch": "torch.eye(2).inverse()",
    **COMPANIONS,
    "xgboost": "xgboost.train({}, xgboost.DMatrix([[1.0]], [1.0]), 1)",
}
"""Module → a call of its native code."""
PROGRAM = """
import importlib.util, json, sys
from importlib import metadata
sys.path[:0] = sys.argv[2:]
from trainmaster.agent.setup.runtime_packages import is_another_build, is_satisfied
failed = {}
for requirement, (module, call) in json.loads(sys.argv[1]).items():
    if is_another_build(requirement):
        continue
    try:
        if not call:
            assert importlib.util.find_spec(module)
        else:
            globals()[module.partition(".")[0]] = importlib.import_module(module)
            exec(call)
    except Exception as error:
        failed[module] = repr(error)
    if not is_satisfied(requirement):
        failed[requirement] = "another version"
print(json.dumps(failed))
"""

MODULES = """
import json
from importlib.metadata import packages_distributions
names = [name for name in packages_distributions() if name.isidentifier()]
print(json.dumps([name for name in names if not name.startswith("_")]))
"""


def declared(name: str) -> dict[str, tuple[str, str]]:
    """Return what the local runtime must have: requirement → its module, and a call."""
    packages = (
        RUNTIMES[RUNTIME_OF[name]].packages
        if name in RUNTIME_OF
        else (*SERVICE_PACKAGES.values(), "jax==0.*")
    )
    modules = {package_name(package): module for module, package in SERVICE_PACKAGES.items()}
    named = {
        package: modules.get(package_name(package), package_name(package)) for package in packages
    }
    return {package: (module, CALLS.get(module, "pass")) for package, module in named.items()}


def failures(name: str, packages: dict[str, tuple[str, str]], folder: Path) -> object:
    """Run the calls on a VM of the local runtime; return the modules and requirements that fail."""
    shared_image = {"xgboost": "scikit-learn"}
    image = IMAGES / shared_image.get(name, name)
    assert (image / STAMP).is_file(), "run `make images` first"
    sources = str(Path(runtime_packages.__file__).parents[3])
    imported = subprocess.run(
        [
            str(create_overlay(image, folder / name) / "python"),
            "-c",
            PROGRAM,
            json.dumps(packages),
            sources,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert imported.returncode == 0, imported.stderr
    return json.loads(imported.stdout.splitlines()[-1])


def test_packages_of_local_runtimes_have_their_versions_and_modules(tmp_path: Path) -> None:
    for name in NAMES:
        modules = {package: (module, "") for package, (module, _) in declared(name).items()}
        assert failures(name, modules, tmp_path) == {}, name


@pytest.mark.parametrize("name", sorted({*RUNTIME_OF} - {"xgboost"}))
def test_modules_of_a_runtime_are_those_that_its_image_has(name: str) -> None:
    packages = RUNTIMES[RUNTIME_OF[name]].packages
    names = frozenset(normalize(package_name(package)) for package in packages)
    listed = subprocess.run(
        [IMAGES / name / "bin" / "python", "-c", MODULES], capture_output=True, check=True
    )
    present = set(json.loads(listed.stdout))
    unknown = {module for module in present if not is_in_runtime(module, names)}
    named = {*import_names.ALWAYS}.union(
        *(modules for package, modules in import_names.BROUGHT_BY.items() if package in names)
    )
    assert (unknown, named - present) == (set(), set())


@pytest.mark.heavy(
    fact="packages of each runtime can be imported and compute",
    quick="each has its version and its module, in the same module",
)
@pytest.mark.parametrize("name", NAMES)
def test_packages_of_local_runtime_are_imported_and_compute(name: str, tmp_path: Path) -> None:
    assert failures(name, declared(name), tmp_path) == {}


def test_all_runtimes_of_the_local_stack_are_tested() -> None:
    assert set(RUNTIME_OF) == {runtime.name for runtime in RUNTIMES.values()}
