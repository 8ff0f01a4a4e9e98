"""A machine whose memory has failed is unfit; one whose memory is sound is not.

The test of the extension guide runs this program with the product as the guide's example changes
it: with one more check before the first program of a VM (the preflight), which reads
/proc/meminfo.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import cast

from tests.integration.agent.support.vm import agent_identity
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.preflight import Preflight
from trainmaster.agent.workspace import Workspace


class Clock:
    def time(self) -> str:
        return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())


def finding(corrupted_kib: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "cat")
        program.write_text(f"#!/bin/sh\necho 'HardwareCorrupted:  {corrupted_kib:4} kB'\n")
        program.chmod(0o755)
        workspace = Workspace(Path(folder), {"PATH": folder + os.pathsep + os.defpath}, Console())
        metadata = cast("MetadataServer", Clock())
        config = agent_identity(preflight="on").config
        preflight = Preflight(config, workspace, metadata, lambda _seconds: None)
        preflight.start(is_first=True)
        preflight.failure()
        return preflight.finding


assert finding(0) == ""
assert finding(8) == "8 KiB of its memory have failed"
