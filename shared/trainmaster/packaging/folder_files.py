"""Which files of a user's folder are packed.

The folder may be a repository of strangers, and every program of the installation can read what is
packed. So a link that leads out of the folder is left out, and so are files that usually contain
secrets, and those that git ignores.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trainmaster.packaging.untrusted_git import git_output

SECRETS: Final = (
    "*.env",
    ".env.*",
    ".envrc",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    ".ssh",
    ".aws",
    ".azure",
    ".gnupg",
    ".kube",
    ".docker",
    ".config",
    ".state",
    ".terraform",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.tfstate",
    "*.tfstate.*",
    "*.tfvars",
    "*service-account*.json",
    "*service_account*.json",
    "application_default_credentials.json",
    "credentials.json",
    "client_secret*.json",
    "token.json",
    "key.json",
    f"*-{'[0-9a-f]' * 12}.json",  # the name under which Google's console saves a key: PROJECT-ID
    "kaggle.json",
    "secrets.json",
    "secrets.toml",
    "secrets.y*ml",
    ".boto",
    ".s3cfg",
    ".dockercfg",
    ".terraformrc",
    ".vault-token",
)
"""Patterns of names that usually contain secrets, for files and folders at any depth.

They are in lower case, and match names in every case.
"""
LEADS_OUT: Final = "leads out of the folder"
LINKS_FOLDER: Final = "is a link to a folder"
SECRET: Final = "may contain secrets"  # noqa: S105 - a reason
GIT_IGNORES: Final = "git ignores it"
SHOWN_MAX: Final = 10
KIB: Final = 1 << 10
GIT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class FolderFiles:
    """The files of a folder that are packed."""

    files: Mapping[str, Path]
    """Name in the folder → path."""
    left_out: Mapping[str, str]
    """Name in the folder → why the user may be surprised that it is not packed."""
    wanted_secrets: Sequence[str] = ()
    """Names of packed files that usually contain secrets: the folder's own ignore file asks for
    them, and it may be of strangers.
    """

    def describe(self) -> str:
        """Return `2 files, 1.5 KiB; left out: .env (may contain secrets)`."""
        size = sum(path.stat().st_size for path in self.files.values())
        noun = "file" if len(self.files) == 1 else "files"
        text = f"{len(self.files)} {noun}, {size / KIB:,.1f} KiB"
        if self.wanted_secrets:
            text = f"{text}, with {_listed(self.wanted_secrets)}, which {SECRET}"
        left_out = [f"{name} ({why})" for name, why in sorted(self.left_out.items())]
        return f"{text}; left out: {_listed(left_out)}" if left_out else text


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and how many there are beside them."""
    more = [f"and {len(names) - SHOWN_MAX} more"] if len(names) > SHOWN_MAX else []
    return ", ".join([*names[:SHOWN_MAX], *more])


def choose_files(folder: Path, paths: Iterable[Path], wanted: Sequence[str] = ()) -> FolderFiles:
    """Choose which of these paths in the folder are packed.

    `wanted`: patterns of files that are packed although they may contain secrets, or git ignores
    them. A link that leads out of the folder is never packed, and no link to a folder is followed:
    it may lead to itself.
    """
    files: dict[str, Path] = {}
    left_out: dict[str, str] = {}
    secrets: list[str] = []
    for path in sorted(paths):
        name = path.relative_to(folder).as_posix()
        if leads_out(folder, path):
            left_out[name] = LEADS_OUT
        elif path.is_symlink() and is_folder(path):
            left_out[name] = LINKS_FOLDER
        elif not is_file(path):
            continue
        elif not _is_secret(folder, path):
            files[name] = path
        elif _matches(Path(name), wanted):
            files[name] = path
            secrets.append(name)
        else:
            left_out[name] = SECRET
    for name in _ignored_by_git(folder, files):
        if not _matches(Path(name), wanted):
            del files[name]
            left_out[name] = GIT_IGNORES
    return FolderFiles(files, left_out, secrets)


def leads_out(folder: Path, path: Path) -> bool:
    """Return whether the path is a link to a place outside of the folder, which need not exist."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(folder))


def is_file(path: Path) -> bool:
    """Return whether the path is a file, or a link to one.

    In contrast to `Path.is_file`, a link to a name that no file can have is none.
    """
    try:
        return path.is_file()
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder, or a link to one; see `is_file`."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_secret(folder: Path, path: Path) -> bool:
    """Return whether the file, or the file in the folder that it links to, may be secret."""
    target = path.resolve().relative_to(folder.resolve())
    names = (path.relative_to(folder), target)
    return any(_matches(Path(str(name).lower()), SECRETS) for name in names)


def _matches(name: Path, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches the file or one of its folders."""
    parts = [name, *name.parents[:-1]]
    return any(part.match(pattern) for part in parts for pattern in patterns)


def _ignored_by_git(folder: Path, names: Iterable[str]) -> list[str]:
    """Return the names that git ignores and does not track; none without git or a repository.

    If git ignores the folder as a whole, the user has chosen it nevertheless: none.
    """
    known = {os.fsencode(name): name for name in names}
    asked = b"\0".join([b".", *known, b""])
    printed = git_output(folder, "check-ignore", "-z", "--stdin", known=asked, timeout_s=GIT_S)
    ignored = printed.split(b"\0")
    return [] if b"." in ignored else [known[name] for name in ignored if name in known]
