"""A job that runs a command in a copy of the user's folder, which becomes a wheel whose module
starts the command.

    folder ──► wheel of its files, with requirements.txt
           ──► gs://BUCKET/packages/folders/SHA256/ ──► packageUris of the job

VMs install it as any package, so that agents of every release can run it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from trainmaster.errors import PermanentError
from trainmaster.jobspec.job_document import field_at, with_field
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
from trainmaster.jobspec.reading.field_names import EXTENSION, PACKED_FROM, TRAINING_INPUT
from trainmaster.packaging import folder_program
from trainmaster.packaging.archives import wheel, wheel_name
from trainmaster.packaging.folder_files import FolderFiles, choose_files, is_file, leads_out
from trainmaster.packaging.folder_origin import folder_origin
from trainmaster.ports import Objects
from trainmaster.wiring.package_upload import upload_package

MODULE: Final = "trainmaster_folder"
"""The Python module that the wheel contains, which starts the command."""
MIB: Final = 1 << 20
BYTES_MAX: Final = 100 * MIB
"""Largest folder that is packed: every VM downloads and installs all of it. Data belongs in Cloud
Storage.
"""
_LARGEST_SHOWN: Final = 5
"""Largest entries of the folder that the error about its size names."""
IGNORE_FILE: Final = ".trainmasterignore"
"""File in the folder with a pattern per line of what is not packed."""
IGNORED: Final = (
    ".git",
    ".venv",
    "venv",
    "node_modules",
    "__pycache__",
    ".*_cache",
    "*.egg-info",
    ".ipynb_checkpoints",
)
"""Patterns of what is never packed: history, environments, caches and build products."""
_REQUIREMENT: Final = re.compile(
    r"[A-Za-z0-9][\w.-]*\s*(\[[\w\s,.-]*\])?\s*([=<>!~(;@](?!.*(\s--|\\)).*)?", re.ASCII
)
"""A line of requirements.txt that is a package: its name, extras in brackets, then a version or an
address. A line that ends with an option (`--…`), or goes on in the next one, is no match.
"""

_REMEDIES: Final = {
    r"(?:-r|--requirement)[ =]?(?P<value>\S+)": "write the lines of {value} in its place",
    r"(?:-c|--constraint)\b": "write the versions into the lines of their packages",
    r"(?:-e|--editable)[ =]?\.|\.{1,2}/?$": (
        "leave it out, because Python finds the modules at the top of the folder without it"
    ),
    r"(?:(?:-e|--editable)[ =]?)?git\+": "write NAME @ before the address, and no option",
    r".*\\$|.*--hash": "leave out its hashes, such as einops==0.8.1",
}
"""Pattern of a line that only pip reads → what to write instead; other lines are options."""
_OTHER_REMEDY: Final = "it must be a package, such as pandas==2.3, and no option"
_LOCAL_PATH: Final = re.compile(
    r"@\s*(?!\s)(?:file:|(?![A-Za-z][\w+.-]*://))"
    r"|^[\w.+-]+\.(?:whl|zip|tar\.gz|tgz|tar\.bz2)$",
    re.IGNORECASE,
)
"""A direct reference without the address of a server, or the name of an archive."""
_CONDA: Final = re.compile(r"[\w.-]+\s*=(?!=)")
"""As `conda list --export` prints it: `numpy=1.26.4=py311h_0`."""


def with_folder(
    document: dict[str, Any],
    folder: Path,
    bucket: str,
    objects: Objects,
    command: Sequence[str] = (),
) -> dict[str, Any]:
    """Upload the folder unless it is there, and return the job that runs a command in a copy of it.

    `command`: empty: the job's `args`. Raises PermanentError if the folder, the command and the job
    do not fit together.
    """
    kind = detect_kind(document)
    if kind is not AI_PLATFORM:
        raise PermanentError(
            f"a folder works with AI Platform's format only; this job file is a {kind.title}"
        )
    command = command or field_at(document, (TRAINING_INPUT, "args")) or ()
    if not command:
        raise PermanentError(
            "a folder needs a command. Example: trainmaster submit --folder . -- python train.py"
        )
    if field_at(document, (TRAINING_INPUT, "pythonModule")):
        raise PermanentError(
            f"{TRAINING_INPUT}.pythonModule: the command of a folder replaces it. Leave it out"
        )
    if not bucket:
        raise PermanentError(
            "no bucket to upload the folder to: run `trainmaster init`, or set TRAINMASTER_BUCKET"
        )
    content = folder_wheel(folder)
    place = f"gs://{bucket.removeprefix('gs://').rstrip('/')}/packages/folders"
    uri = f"{place}/{hashlib.sha256(content).hexdigest()}/{wheel_name(MODULE)}"
    package = upload_package(uri, content, "application/zip", objects)
    job = job_of_folder(document, command, package)
    return with_field(job, (EXTENSION, PACKED_FROM), folder_origin(folder))


def job_of_folder(
    document: dict[str, Any],
    command: Sequence[str],
    uri: str = f"gs://bucket-of-the-installation/{wheel_name(MODULE)}",
) -> dict[str, Any]:
    """Return the job that installs the folder's wheel, and runs the command.

    `uri`: of the wheel; the default stands for one that is not uploaded.
    """
    others = field_at(document, (TRAINING_INPUT, "packageUris")) or []
    if isinstance(others, str):
        others = [others]
    fields = {
        "packageUris": [*others, uri],
        "pythonModule": MODULE,
        "args": list(command),
    }
    for field, value in fields.items():
        document = with_field(document, (TRAINING_INPUT, field), value)
    return document


def folder_wheel(folder: Path) -> bytes:
    """Return the wheel of a folder. Raises PermanentError for one that is empty or too large."""
    files = list_folder_files(folder).files
    sizes = Counter[str]()
    """By entry of the folder."""
    for name, path in files.items():
        sizes[name.partition("/")[0]] += path.stat().st_size
    if not files:
        raise PermanentError(f"{folder.resolve()} has no file that a job could use")
    if sizes.total() > BYTES_MAX:
        largest = [
            f"{name} ({size / MIB:.1f} MiB)" for name, size in sizes.most_common(_LARGEST_SHOWN)
        ]
        raise PermanentError(
            f"{folder.resolve()} is larger than {BYTES_MAX // MIB} MiB: {', '.join(largest)}. Put"
            f" data into Cloud Storage, and list in {IGNORE_FILE} what the job does not need"
        )
    entries = {f"{MODULE}/__main__.py": Path(folder_program.__file__)}
    entries |= {f"{MODULE}/files/{name}": path for name, path in files.items()}
    try:
        return wheel(MODULE, entries, read_requirements(folder))
    except (OSError, UnicodeError) as error:
        # There is no permission to read a file, or its name is no text.
        raise PermanentError(
            f"{folder.resolve()} cannot be packed: {error}. {IGNORE_FILE} can leave it out"
        ) from None


def read_requirements(folder: Path) -> list[str]:
    """Return the packages in requirements.txt; empty if there is none.

    Raises PermanentError for other lines.
    """
    file = folder / "requirements.txt"
    requirements = [re.sub(r"(^|\s)#.*", "", line).strip() for line in _lines_of(file)]
    for number, line in enumerate(requirements, 1):
        if line and not _REQUIREMENT.fullmatch(line):
            raise PermanentError(
                f"{file}:{number}: {line!r} is not read here: {_remedy_of_requirement(line)}"
            )
        if _LOCAL_PATH.search(line):
            raise PermanentError(
                f"{file}:{number}: {line!r} names a file of this machine, which the job's VMs do"
                " not have: name a version, such as pandas==2.3"
            )
        if _CONDA.match(line):
            name, version = line.split("=")[:2]
            raise PermanentError(
                f"{file}:{number}: {line!r} is a line of conda, which pip cannot read: write"
                f" {name.strip()}=={version.strip()}"
            )
    return [line for line in requirements if line]


def _remedy_of_requirement(line: str) -> str:
    for pattern, form in _REMEDIES.items():
        match = re.match(pattern, line)
        if match:
            return form.format(**match.groupdict())
    return _OTHER_REMEDY


def list_folder_files(folder: Path) -> FolderFiles:
    """Return the files of the folder that are packed.

    A line of the ignore file leaves files out. With `!` before it, it keeps files that look like
    secrets or that git ignores, but none of `IGNORED`.
    """
    lines = [line.strip() for line in _lines_of(folder / IGNORE_FILE)]
    wanted = [line[1:].strip("/") for line in lines if line.startswith("!")]
    unwanted = [line.strip("/") for line in lines if line and line[0] not in "#!"]
    patterns = [*IGNORED, *filter(None, unwanted)]

    def is_kept(path: Path) -> bool:
        return not any(path.relative_to(folder).match(pattern) for pattern in patterns)

    found: list[Path] = []
    for root, folders, names in os.walk(folder):
        # The walk does not enter the folders that are removed from the list.
        folders[:] = [name for name in folders if is_kept(Path(root, name))]
        found += filter(is_kept, (Path(root, name) for name in names))
        found += filter(Path.is_symlink, (Path(root, name) for name in folders))
    return choose_files(folder, found, list(filter(None, wanted)))


def _lines_of(file: Path) -> list[str]:
    """Return the lines of a file; none if it does not exist, or leads out of its folder."""
    if not is_file(file) or leads_out(file.parent, file):
        return []
    return file.read_text(encoding="utf-8", errors="replace").splitlines()
