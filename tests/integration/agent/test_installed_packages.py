"""The requirements of the job's packages, read after a real pip has installed them."""

from __future__ import annotations

import json
import site
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.agent.setup.installed_packages import require_nothing

from .support.packages import wheel_of

PIP = ("-m", "pip", "install", "--quiet", "--user", "--no-deps", "--no-index", "--no-build-isolation")

REQUIREMENTS = {
    "pytest; extra == 'dev'": True,
    "pytest ; (extra == 'dev')": True,
    'pytest; python_version > "3" and extra == "dev"': True,
    "helper": False,
    "helper; python_version > '3'": False,
    "helper; extra == 'dev' or python_version > '3'": False,
}
"""Requirements of a package, and whether only an extra of the package requires them."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for packages. Its name has characters that URLs quote. pip's user site is beside it."""
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    monkeypatch.setattr(site, "USER_BASE", None)
    monkeypatch.setattr(site, "USER_SITE", None)
    folder = tmp_path / "job's packages"
    folder.mkdir()
    return folder


def install(package: Path, content: bytes) -> Path:
    package.write_bytes(content)
    # A virtual environment refuses --user, unless it is an overlay like a local VM's.
    base = str(Path(sys.executable).resolve())
    subprocess.run([base, *PIP, package.name], cwd=package.parent, check=True)
    return package


def trainer(*requires: str) -> bytes:
    return wheel_of("trainer", {"trainer/task.py": ""}, requires=requires)


def test_only_packages_that_name_no_other_package_require_nothing(folder: Path) -> None:
    package = install(folder / "trainer-0.1-py3-none-any.whl", trainer())
    assert require_nothing([package])
    (description,) = folder.parent.rglob("METADATA")
    text = description.read_text()
    for requirement, is_optional in REQUIREMENTS.items():
        description.write_text(f"{text}Requires-Dist: {requirement}\n")
        assert require_nothing([package]) == is_optional, requirement


def test_one_package_with_a_requirement_is_enough(folder: Path) -> None:
    helper = install(folder / "helper-0.1-py3-none-any.whl", wheel_of("helper", {"helper.py": ""}))
    package = install(folder / "trainer-0.1-py3-none-any.whl", trainer("helper"))
    assert require_nothing([helper])
    assert not require_nothing([helper, package])
    assert not require_nothing([helper, folder / "uninstalled-0.1-py3-none-any.whl"])
    (record,) = folder.parent.rglob("helper-0.1.dist-info/direct_url.json")
    for url in ("https://example.com/helper-0.1-py3-none-any.whl", "file:///elsewhere/helper-0.1-py3-none-any.whl"):
        record.write_text(json.dumps({"url": url, "archive_info": {}}))
        assert not require_nothing([helper])
    for text in ("null", "[]", '{"url": 1}', "{}", "no JSON"):  # other programs may write the file, too
        record.write_text(text)
        assert not require_nothing([helper])
    record.unlink()  # pips before 20.1 write none
    assert not require_nothing([helper])
