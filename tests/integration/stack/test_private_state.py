"""The state directory of a stack is believed only if this user's `local up` made it.

The working directory may be a cloned repository, or a folder that others can write: neither chooses
the installation, nor sets variables, nor names processes to stop.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainmaster.cli import installation
from trainmaster.cli.installation import choose_installation
from trainmaster.errors import PermanentError
from trainmaster.wiring.installation import remember
from trainmaster_emulators.process import state, state_dirs
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import (
    LOCK_FILE,
    STATE_FILE,
    Endpoints,
    StackError,
    StackState,
    StackStatus,
)
from trainmaster_emulators.process.state_dirs import DEFAULT_STATE_DIR
from trainmaster_emulators.stack import client_configuration, stack

ENDPOINTS = Endpoints(
    firestore="127.0.0.1:9",
    pubsub="127.0.0.1:9",
    storage="127.0.0.1:9",
    storage_tls="127.0.0.1:9",
    compute=None,
    proxy=None,
    logging="127.0.0.1:9",
    monitoring="127.0.0.1:9",
)
LOCAL = "trainmaster-local"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Run a stack in the working directory's state directory. No `local up` has recorded it.

    Nothing is remembered, and no variable names an installation.
    """
    for name in [name for name in os.environ if name.startswith("TRAINMASTER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    os.environ |= {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        state_dirs.STATE_HOME_VARIABLE: str(tmp_path / "state-home"),
    }
    installation._say_once.cache_clear()
    clone = tmp_path / "clone"
    clone.mkdir()
    monkeypatch.chdir(clone)
    state_dir = DEFAULT_STATE_DIR.absolute()
    state_dir.parent.mkdir()
    state_dir.mkdir(mode=state.PRIVATE)
    running = StackState(
        id="0" * 32,
        status=StackStatus.READY,
        config=StackConfig(),
        backend="test",
        supervisor_pid=1,
        supervisor_started_at=0.0,
        started_at=0.0,
        endpoints=ENDPOINTS,
    )
    state.write(state_dir, running)
    with state.lock(state_dir):
        yield state_dir


def test_stack_of_this_user_is_found_from_its_folder(folder: Path) -> None:
    assert state.is_up(folder)
    assert stack.find(folder).config.project == LOCAL


def _open_directory(folder: Path) -> None:
    folder.chmod(0o755)


def _open_file(folder: Path) -> None:
    (folder / STATE_FILE).chmod(0o644)


def _open_lock(folder: Path) -> None:
    (folder / LOCK_FILE).chmod(0o660)


def _link_lock(folder: Path) -> None:
    """As a repository does with a file that a desktop session keeps locked."""
    _link(folder / LOCK_FILE)


def _link_file(folder: Path) -> None:
    _link(folder / STATE_FILE)


def _link_directory(folder: Path) -> None:
    _link(folder)


def _replace_file_by_a_pipe(folder: Path) -> None:
    """A reader would wait for its end."""
    (folder / STATE_FILE).unlink()
    os.mkfifo(folder / STATE_FILE, 0o600)


def _link(path: Path) -> None:
    target = path.with_name("elsewhere")
    path.rename(target)
    path.symlink_to(target)


@pytest.mark.parametrize(
    "change",
    [
        _open_directory,
        _open_file,
        _open_lock,
        _link_lock,
        _link_file,
        _link_directory,
        _replace_file_by_a_pipe,
    ],
)
def test_state_that_local_up_did_not_make_is_not_used(
    folder: Path, change: Callable[[Path], None]
) -> None:
    change(folder)
    assert not state.is_up(folder)
    for use in (stack.find, stack.stop):
        with pytest.raises(StackError, match="is not used"):
            use(folder)
    with pytest.raises(PermanentError, match="no installation"):
        choose_installation()


def test_link_that_replaces_the_lock_after_the_look_is_not_followed(folder: Path) -> None:
    _link(folder / LOCK_FILE)
    with pytest.raises(OSError, match="symbolic links"), state.lock(folder, create=False):
        pass


def test_state_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: folder.stat().st_uid + 1)
    assert not state.is_up(folder)
    with pytest.raises(StackError, match="belongs to another user"):
        stack.stop(folder)


@pytest.mark.parametrize("name", ["BROWSER", "PATH", "https_proxy", "LD_PRELOAD", "A; id; B"])
def test_file_sets_only_settings_of_trainmaster(folder: Path, name: str) -> None:
    file = folder / STATE_FILE
    file.write_text(file.read_text().replace('"settings": {}', f'"settings": {{"{name}": "x"}}'))
    with pytest.raises(StackError, match="cannot read the stack's state"):
        stack.find(folder)
    with pytest.raises(PermanentError, match="no installation"):
        choose_installation()
    assert os.environ.get(name) != "x"


def test_names_that_are_code_are_not_exported() -> None:
    with pytest.raises(StackError, match="no name of an environment variable"):
        client_configuration.export_lines({"A; id; B": "1"})


def test_working_directory_does_not_replace_what_is_remembered(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert state.is_up(folder)
    remember({"project": "my-project"})
    choose_installation()
    assert os.environ["TRAINMASTER_PROJECT"] == "my-project"
    assert capsys.readouterr().err == ""


def test_last_local_up_comes_before_what_is_remembered_and_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember({"project": "my-project"})
    state_dirs.remember_state_dir(folder)
    choose_installation()
    choose_installation()
    assert os.environ["TRAINMASTER_PROJECT"] == LOCAL
    assert capsys.readouterr().err == (
        f"Working with project {LOCAL}, on the local stack in {folder}\n"
    )


def test_project_of_the_environment_is_named_if_another_one_is_remembered(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    remember({"project": "my-project"})
    os.environ["TRAINMASTER_PROJECT"] = "other-project"
    choose_installation()
    assert capsys.readouterr().err == "Working with project other-project\n"


def test_stack_of_the_working_directory_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    choose_installation()
    assert capsys.readouterr().err.endswith(f"on the local stack in {folder}\n")


def test_start_writes_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "profile"
    victim.write_text("mine")
    logs = tmp_path / "stack" / state.LOGS
    logs.mkdir(parents=True)
    (logs / state.SUPERVISOR_LOG).symlink_to(victim)
    with pytest.raises(StackError, match="symbolic links"):
        stack.start(tmp_path / "stack", StackConfig())
    assert victim.read_text() == "mine"


def test_start_refuses_a_folder_of_another_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(StackError, match="belongs to another user"):
        stack.start(tmp_path, StackConfig())
