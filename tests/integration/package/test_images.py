"""Runtime images that `trainmaster local images` builds: of a small wheel, in place of the real
packages.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.package.conftest import Installation
from trainmaster.errors import PermanentError
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.stack.runtime_images import STAMP, image_table
from trainmaster_local.cli import images as module
from trainmaster_local.cli.images import Runtime, images

OTHER_PYTHON = """\
#!{executable}
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.support.python_image import create_python_image
_, *module, folder = sys.argv
assert module == ["-P", "-m", "venv"]
create_python_image(Path(folder))
"""
"""An interpreter beside which there is no uv.

It links pip into a new environment, because installing takes seconds.
"""


@pytest.fixture
def requirements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the requirements of the runtime image `jax`: one wheel, which is in a folder."""
    wheel = tmp_path / "small-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("small.py", "NUMBER = 7\n")
        archive.writestr(
            "small-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: small\nVersion: 1.0\n"
        )
        archive.writestr(
            "small-1.0.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        archive.writestr("small-1.0.dist-info/RECORD", "")
    locked = tmp_path / "requirements" / "runtime-jax.txt"
    locked.parent.mkdir()
    locked.write_text(
        f"small==1.0 --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n",
        encoding="utf-8",
    )
    for tool in ("PIP", "UV"):
        monkeypatch.setenv(f"{tool}_NO_INDEX", "1")
        monkeypatch.setenv(f"{tool}_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "IMAGES", tmp_path / "images")
    return locked


@pytest.mark.slow
@pytest.mark.parametrize(
    "tool",
    [
        "pip",
        pytest.param(
            "uv",
            marks=pytest.mark.heavy(
                fact="runtime images are built by uv, too", quick="the same test with pip"
            ),
        ),
    ],
)
def test_image_is_built_once_and_again_after_an_interruption_or_an_upgrade(
    tool: str,
    requirements: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    if tool == "pip":
        other = tmp_path / "python"
        other.write_text(
            OTHER_PYTHON.format(executable=sys.executable, root=str(ROOT)), encoding="utf-8"
        )
        other.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(other))
    folder = tmp_path / "images" / "jax"
    (folder / "bin").mkdir(parents=True)  # what an interrupted build has left
    (folder / "bin" / "python").write_text("half", encoding="utf-8")
    (folder / STAMP).write_text("requirements of an earlier release", encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.setattr(sys, "executable", "/bin/false")
        with pytest.raises(PermanentError, match="jax is not complete"):
            images([Runtime.JAX])
    images([Runtime.JAX], list_only=True)
    assert capfd.readouterr().out.endswith("jax: not built\n")
    images([Runtime.JAX])
    program = [str(folder / "bin" / "python"), "-c", "import small; print(small.NUMBER)"]
    assert subprocess.run(program, capture_output=True, text=True, check=True).stdout == "7\n"
    assert str(folder) in image_table(tmp_path / "images").values()
    capfd.readouterr()
    images([Runtime.JAX])
    assert capfd.readouterr().out == f"jax: {folder}\n", "a complete image stays"
    requirements.write_text("small==2.0\n", encoding="utf-8")
    images([Runtime.JAX], list_only=True)
    assert capfd.readouterr().out == "jax: not built\n"


def test_installed_package_has_its_images_in_the_users_cache(
    install: Callable[[str], Installation], tmp_path: Path
) -> None:
    installation, cache = install("local"), tmp_path / "cache"
    (cache / "trainmaster/images/jax").mkdir(parents=True)
    (locked,) = installation.folder.glob(
        "lib/*/site-packages/*/_checkout/requirements/runtime-jax.txt"
    )
    (cache / "trainmaster/images/jax" / STAMP).write_bytes(locked.read_bytes())
    command = ("trainmaster", "local", "images", "--list")
    listed = installation.run(*command, cwd=tmp_path, XDG_CACHE_HOME=str(cache))
    assert listed.stdout.splitlines()[2:] == [
        "pytorch: not built",
        f"jax: {cache}/trainmaster/images/jax",
    ], listed
    listed = installation.run(*command, "jax", cwd=tmp_path, XDG_CACHE_HOME="", HOME=str(tmp_path))
    assert listed.stdout == "jax: not built\n"
