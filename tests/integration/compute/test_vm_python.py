"""The Python of a VM: `pip install --user` overrides the image's packages, and nothing reaches
other VMs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from tests.integration.agent.support.packages import wheel_of
from tests.support.python_image import create_python_image
from trainmaster_emulators.machines.vm_python import CONFIGURATION, create_overlay, image_settings

NAME = "overlaid_package"
SCRIPT = f"#!%s/bin/python3\nimport {NAME}; print('script', {NAME}.VERSION)\n"


def run(command: list[str], home: Path) -> str:
    environment = {
        **os.environ,
        "HOME": str(home),
        "PIP_NO_INDEX": "1",
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
    }
    for name in ("PYTHONNOUSERSITE", "PYTHONPATH", "PIP_USER", "PYTHONUSERBASE"):
        environment.pop(name, None)
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def wheel(folder: Path, version: str) -> str:
    path = folder / f"{NAME}-{version}-py3-none-any.whl"
    path.write_bytes(wheel_of(NAME, {f"{NAME}.py": f"VERSION = {version!r}"}, version=version))
    return str(path)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runtime image, as `make images` builds it, with version 2 of the package and a console
    script.
    """
    folder = tmp_path_factory.mktemp("image")
    image = folder / "runtime"
    create_python_image(image)
    site = sysconfig.get_path("purelib", vars={"base": str(image)})
    zipfile.ZipFile(wheel(folder, "2.0")).extractall(site)  # as pip does
    (image / "bin" / "report-version").write_text(SCRIPT % image)
    (image / "bin" / "report-version").chmod(0o755)
    return image


def imported_version(python: str, home: Path) -> str:
    return run([python, "-c", f"import {NAME}; print({NAME}.VERSION)"], home)


def test_user_install_overrides_a_package_of_the_image_in_this_vm_only(
    image: Path, tmp_path: Path
) -> None:
    first, second = (
        str(create_overlay(image, tmp_path / vm) / "python3") for vm in ("vm-0", "vm-1")
    )
    homes = [tmp_path / "home-0", tmp_path / "home-1"]
    assert [imported_version(first, homes[0]), imported_version(second, homes[1])] == ["2.0", "2.0"]
    run([first, "-m", "pip", "install", "--user", wheel(tmp_path, "1.0")], homes[0])
    assert [imported_version(first, homes[0]), imported_version(second, homes[1])] == ["1.0", "2.0"]
    installed = (
        f"import importlib.metadata, sys; print(importlib.metadata.version({NAME!r}), *sys.path,"
        " sep='\\n')"
    )
    version, *folders = run([first, "-c", installed], homes[0]).splitlines()
    assert version == "1.0"
    assert len(folders) == len(set(folders))
    order = [
        next(place for place, folder in enumerate(folders) if text in folder)
        for text in (f"{tmp_path}/vm-0/", "/.local/", f"{image}/")
    ]
    assert order == sorted(order), "the user site comes before the image"
    script = str(Path(first).parent / "report-version")
    assert run([script], homes[0]) == "script 1.0"


def test_plain_install_stays_in_its_vm_also_after_a_second_boot(
    image: Path, tmp_path: Path
) -> None:
    first, second = (
        str(create_overlay(image, tmp_path / vm) / "python3") for vm in ("vm-0", "vm-1")
    )
    run([first, "-m", "pip", "install", wheel(tmp_path, "3.0")], tmp_path)
    assert [imported_version(first, tmp_path), imported_version(second, tmp_path)] == ["3.0", "2.0"]
    assert imported_version(str(image / "bin" / "python3"), tmp_path) == "2.0"
    assert str(create_overlay(image, tmp_path / "vm-0") / "python3") == first
    assert imported_version(first, tmp_path) == "3.0"


def test_overlay_without_its_configuration_is_completed(image: Path, tmp_path: Path) -> None:
    create_overlay(image, tmp_path / "vm")
    (tmp_path / "vm" / "pyvenv.cfg").unlink()
    assert (
        imported_version(str(create_overlay(image, tmp_path / "vm") / "python3"), tmp_path) == "2.0"
    )


def test_packages_of_the_developers_interpreter_are_not_on_the_vm(tmp_path: Path) -> None:
    base, image = tmp_path / "base", tmp_path / "image"
    library = base / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    (library / "site-packages").mkdir(parents=True)
    (library / "site-packages" / "developers_own.py").touch()
    for entry in Path(sysconfig.get_path("stdlib")).iterdir():
        if entry.name != "site-packages":
            (library / entry.name).symlink_to(entry)
    find = [
        "-c",
        "import importlib.util; print(importlib.util.find_spec('developers_own') is not None)",
    ]
    venv.create(image, symlinks=True)
    settings = image_settings(image) | {
        "home": str(base / "bin"),
        "include-system-site-packages": "true",
    }
    (image / CONFIGURATION).write_text(
        "".join(f"{key} = {value}\n" for key, value in settings.items())
    )
    assert run([str(image / "bin" / "python3"), *find], tmp_path) == "True"
    assert (
        run([str(create_overlay(image, tmp_path / "vm") / "python3"), *find], tmp_path) == "False"
    )
