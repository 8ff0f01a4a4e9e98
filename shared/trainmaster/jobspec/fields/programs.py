"""The parts of a program that both APIs check alike: packages, module, directory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.document_kinds import example_at

_BUCKET: Final = r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
_BUCKET_NAME: Final = re.compile(_BUCKET.removeprefix("gs://"))
_GCS_OBJECT: Final = re.compile(
    rf"{_BUCKET}/[^\s*?\[\]#\\]+[^\s*?\[\]#\\/]|{_BUCKET}/[^\s*?\[\]#\\/]"
)
_VERSION: Final = re.compile(r"#([1-9][0-9]{0,18}|sha256=[0-9a-f]{64})$")
"""A generation, or the hash of the content, which the agent verifies."""
_GCS_DIRECTORY: Final = re.compile(rf"{_BUCKET}(/[^\s*?\[\]#\\]*)?")
_FORBIDDEN: Final = re.compile(r"[\s*?\[\]#\\]")
_URI_CHARS_MAX: Final = 1_024 + 256
"""Characters of an object's name, and of its bucket's with `gs://`."""
_ARCHIVES: Final = (".tar.gz", ".tgz", ".whl", ".zip", ".tar.bz2", ".tar.xz", ".tar")
_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def check_packages(packages: Sequence[str], path: FieldPath, problems: Problems) -> None:
    """Check the addresses of the packages that pip installs: at least one, and none twice."""
    require(packages, path, problems)
    first_with_name: dict[str, int] = {}
    for index, uri in enumerate(packages):
        object_uri = _VERSION.sub("", uri)
        file_name = PurePosixPath(object_uri).name
        item_path = (*path, index)
        if not _is_safe_uri(object_uri, _GCS_OBJECT):
            rule = (
                "must be an object in Cloud Storage (gs://bucket/path/file, without .. and"
                " wildcards)"
            )
            fault = _describe_fault(object_uri) or _describe_local(uri)
            problems.add(
                item_path, f"{rule}, not {quoted(uri)}{fault}", example=example_at(item_path)
            )
        elif not file_name.endswith(_ARCHIVES):
            rule = f"must be a package that pip can install ({', '.join(_ARCHIVES)})"
            problems.add(
                item_path, f"{rule}, not {quoted(file_name)}", example=example_at(item_path)
            )
        elif file_name in first_with_name:
            first = f"packageUris[{first_with_name[file_name]}]"
            problem = f"has the same file name as {first}: one would overwrite the other"
            problems.add(item_path, problem, example=re.sub(r"([^/]+)$", r"other-\1", object_uri))
        first_with_name.setdefault(file_name, index)


def check_module(module: str | None, path: FieldPath, problems: Problems) -> None:
    """Check the name of the module that `python -m` runs."""
    require(module, path, problems)
    if module is not None and not _MODULE.fullmatch(module):
        rule = "must be a dotted module name for python -m"
        problems.add(
            path, f"{rule}, not {quoted(module)}", example=_dotted_name(module) or example_at(path)
        )


def check_directory(directory: str | None, path: FieldPath, problems: Problems) -> None:
    """Check the address of a folder in Cloud Storage; None: the job has none."""
    if directory is not None and not _is_safe_uri(directory, _GCS_DIRECTORY):
        rule = "must be a Cloud Storage path (gs://bucket/path, without .. and wildcards)"
        problem = f"{rule}, not {quoted(directory)}{_describe_fault(directory)}"
        problems.add(path, problem, example=example_at(path))


def require(value: object, path: FieldPath, problems: Problems) -> None:
    """Add a problem if the field is absent. In both APIs, null, empty and zero mean absent."""
    if not value:
        problems.add(path, "is required", example=example_at(path))


def _is_safe_uri(uri: str, pattern: re.Pattern[str]) -> bool:
    """Return whether the URI has the form and stays within its path on every file system."""
    return (
        len(uri) <= _URI_CHARS_MAX
        and pattern.fullmatch(uri) is not None
        and uri.isprintable()
        and not any(step in (".", "..") for step in uri.split("/"))
    )


def _describe_fault(uri: str) -> str:
    """Return what is wrong with a URI of Cloud Storage, as the end of a sentence."""
    scheme, _, rest = uri.partition("://")
    bucket, _, path = rest.partition("/")
    character = _FORBIDDEN.search(path)
    if scheme != "gs":
        return ""
    if bucket != bucket.lower():
        return ": a bucket's name has no capital letters"
    if not _BUCKET_NAME.fullmatch(bucket):
        return f": {quoted(bucket)} is no name of a bucket, which has 3 to 222 characters"
    if character is not None:
        named = {" ": "a space"}.get(character[0], quoted(character[0]))
        return f": {named} is not allowed in it"
    return ""


def _describe_local(uri: str) -> str:
    """Return what to do with a file of the sender's machine, as the end of a sentence."""
    is_local = "://" not in uri and uri.endswith(_ARCHIVES)
    return f": `trainmaster submit --packages {uri}` uploads a local file" if is_local else ""


def _dotted_name(module: str) -> str | None:
    """Return the module of a file, `trainer.task` for `trainer/task.py`; None: it is none."""
    dotted = re.sub(r"\.py$", "", module).strip("./").replace("/", ".").replace("-", "_")
    return dotted if _MODULE.fullmatch(dotted) else None
