"""Whole files in a job directory, which is local or in Cloud Storage. Shared by trainers through symbolic links.

`google-cloud-storage` follows STORAGE_EMULATOR_HOST: the same code runs on the local stack and on Google Cloud. It is
imported only for `gs://` paths, so that a local run does not need it.
"""

import contextlib
from pathlib import Path
from typing import Any

SCHEME = "gs://"


def write_file(job_dir: str, name: str, content: bytes) -> str:
    """Write a file atomically and return its path: readers see the old or the new content, never a part."""
    if job_dir.startswith(SCHEME):
        _blob(job_dir, name).upload_from_string(content)
        return f"{job_dir.rstrip('/')}/{name}"
    path = Path(job_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.part")
    scratch.write_bytes(content)
    scratch.replace(path)
    return str(path)


def read_file(job_dir: str, name: str) -> bytes | None:
    """Return a file's content, or None if the file does not exist."""
    if job_dir.startswith(SCHEME):
        from google.api_core.exceptions import NotFound

        try:
            content: bytes = _blob(job_dir, name).download_as_bytes()
        except NotFound:
            return None
        return content
    path = Path(job_dir, name)
    return path.read_bytes() if path.exists() else None


def delete_file(job_dir: str, name: str) -> None:
    """Delete a file. It may be missing."""
    if job_dir.startswith(SCHEME):
        from google.api_core.exceptions import NotFound

        with contextlib.suppress(NotFound):
            _blob(job_dir, name).delete()
    else:
        Path(job_dir, name).unlink(missing_ok=True)


def _blob(job_dir: str, name: str) -> Any:
    from google.cloud import storage

    bucket, _, prefix = job_dir.removeprefix(SCHEME).rstrip("/").partition("/")
    return storage.Client().bucket(bucket).blob(f"{prefix}/{name}" if prefix else name)
