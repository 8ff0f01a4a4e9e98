"""The agent as one zip application, and its address in Cloud Storage.

`make stage` builds it, and infra/ stores it as `agent/SHA256.zip`. A VM downloads it, and runs it
only if its content has that hash. The zip keeps the names `trainmaster.agent` and
`trainmaster.program_errors`, which the agent imports, so that imports are the same there and here.
docs/decisions/0038-agent-by-hash.md.
"""

from __future__ import annotations

import hashlib
import marshal
from functools import cache
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Final

from trainmaster.packaging.archives import zip_archive

_PACKAGE: Final = Path(__file__).parents[1]
AGENT: Final = _PACKAGE / "agent"
"""The agent's sources and its two scripts."""
_PROGRAM_ERRORS: Final = _PACKAGE / "program_errors"
_MAIN: Final = (
    "import os, sys\n\nfrom trainmaster.agent.main import main\n\nsys.exit(main(sys.argv,"
    " os.environ))\n"
)


@cache
def agent_archive(*, compiled: bool = False) -> bytes:
    """Return the zip application. The same sources give the same bytes with the same zlib.

    `compiled`: with its modules compiled for this version of Python, which others ignore. An agent
    then starts sooner.
    """
    files = {"__main__.py": _MAIN.encode(), "trainmaster/__init__.py": b""}
    for folder in (AGENT, _PROGRAM_ERRORS):
        for path in folder.rglob("*.py"):
            files[f"trainmaster/{path.relative_to(_PACKAGE)}"] = path.read_bytes()
    if compiled:
        files |= {f"{name}c": _compiled(name, source) for name, source in files.items()}
    return zip_archive(files)


def _compiled(name: str, source: bytes) -> bytes:
    """Return the content of a module's pyc file. Source: PEP 552, pyc files that are not checked.

    The second format of `marshal` is the same in all processes.
    """
    flags = b"\1\0\0\0"  # not checked against the source
    unused_hash = bytes(8)
    code = compile(source, name, "exec", dont_inherit=True)
    return MAGIC_NUMBER + flags + unused_hash + marshal.dumps(code, 2)


def agent_object(archive: bytes) -> str:
    """Return the name of the object.

    It contains the hash of the content, so no object is ever replaced.
    """
    return f"agent/{hashlib.sha256(archive).hexdigest()}.zip"
