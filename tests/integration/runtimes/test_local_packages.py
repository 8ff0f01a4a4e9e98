"""Each local runtime imports what every runtime of the old service had, and finds today's versions."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from trainmaster.agent.setup import runtime_packages
from trainmaster.jobspec.catalog.service_packages import SERVICE_PACKAGES
from trainmaster_emulators.stack.runtime_images import STAMP

pytestmark = pytest.mark.slow

IMAGES = Path(__file__).parents[3] / ".images"
PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[2])
from trainmaster.agent.setup.runtime_packages import is_satisfied
packages = json.loads(sys.argv[1])
failed = {}
for module, requirement in packages.items():
    try:
        importlib.import_module(module)
    except ImportError as error:
        failed[module] = str(error)
    if not is_satisfied(requirement):
        failed[requirement] = "another version"
print(json.dumps(failed))
"""


@pytest.mark.parametrize(
    "name",
    ["tensorflow", *(pytest.param(name, marks=pytest.mark.heavy) for name in ("scikit-learn", "pytorch", "jax"))],
)
def test_local_runtime_has_the_packages_of_the_service(name: str) -> None:
    assert (IMAGES / name / STAMP).is_file(), "run `make images` first"
    root = Path(runtime_packages.__file__).parents[3]
    imported = subprocess.run(
        [str(IMAGES / name / "bin" / "python"), "-c", PROGRAM, json.dumps(SERVICE_PACKAGES), str(root)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(imported.stdout) == {}
