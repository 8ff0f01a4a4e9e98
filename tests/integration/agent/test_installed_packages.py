"""The requirements of the job's packages, read after a real pip has installed them."""

from __future__ import annotations

import json
import site
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.agent.setup.installed_packages import require_nothing

from .support.packages import wheel_of

PIP = (
    "-m",
    "pip",
    "install",
    "--quiet",
    "--user",
    "--no-deps",
    "--no-index",
    "--no-build-isolation",
)

REQUIREMENTS = {
    "pytest; extra == 'dev'": True,
    "pytest ; (extra == 'dev')": True,
    'pytest; python_version > "3" and extra == "dev"': True,
    "helper": False,
    "helper; python_version > '3'": False,
    "helper; extra == 'dev' or python_version > '3'": False,
}
"""Requirements of a package, and whether only an extra of the package requires them."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the packages, all installed.

    Its name has characters that URLs quote. A user site is beside it.
    """
    folder = tmp_path_factory.mktemp("vm") / "job's packages"
    folder.mkdir()
    for name, requires in {"trainer": (), "helper": (), "caller": ("helper",)}.items():
        wheel_path(folder, name).write_bytes(
            wheel_of(name, {f"{name}/task.py": ""}, requires=requires)
        )
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("PYTHONUSERBASE", str(folder.parent / "user"))
        monkeypatch.setattr(site, "USER_BASE", None)
        monkeypatch.setattr(site, "USER_SITE", None)
        # A virtual environment refuses --user, unless it is an overlay like a local VM's.
        base = str(Path(sys.executable).resolve())
        subprocess.run(
            [base, *PIP, *(path.name for path in folder.iterdir())], cwd=folder, check=True
        )
        yield folder


def wheel_path(folder: Path, name: str) -> Path:
    return folder / f"{name}-0.1-py3-none-any.whl"


def test_only_packages_that_name_no_other_package_require_nothing(folder: Path) -> None:
    package = wheel_path(folder, "trainer")
    assert require_nothing([package])
    (description,) = folder.parent.rglob("trainer-0.1.dist-info/METADATA")
    text = description.read_text()
    for requirement, is_optional in REQUIREMENTS.items():
        description.write_text(f"{text}Requires-Dist: {requirement}\n")
        assert require_nothing([package]) == is_optional, requirement


def test_one_package_with_a_requirement_is_enough(folder: Path) -> None:
    helper = wheel_path(folder, "helper")
    assert require_nothing([helper])
    assert not require_nothing([helper, wheel_path(folder, "caller")])
    assert not require_nothing([helper, wheel_path(folder, "uninstalled")])
    (record,) = folder.parent.rglob("helper-0.1.dist-info/direct_url.json")
    for url in (
        "https://example.com/helper-0.1-py3-none-any.whl",
        "file:///elsewhere/helper-0.1-py3-none-any.whl",
    ):
        record.write_text(json.dumps({"url": url, "archive_info": {}}))
        assert not require_nothing([helper])
    # Other programs may write the file, too.
    for text in (
        "null",
        "[]",
        '{"url": 1}',
        "{}",
        "no JSON",
    ):
        record.write_text(text)
        assert not require_nothing([helper])
    record.unlink()  # pips before 20.1 write none
    assert not require_nothing([helper])
