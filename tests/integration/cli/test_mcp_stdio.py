"""`trainmaster mcp` as a client of the protocol starts it: a process with standard input and
output.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio


def test_the_command_serves_its_standard_input(tmp_path: Path) -> None:
    from mcp import Client, StdioServerParameters, stdio_client

    address = "127.0.0.1:1"  # nobody answers there
    environment = {
        "TRAINMASTER_PROJECT": "my-project",
        "TRAINMASTER_API_ENDPOINT": f"http://{address}",
        "FIRESTORE_EMULATOR_HOST": address,
        "HOME": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    arguments = ["-m", "trainmaster", "mcp", "--budget", "agents:20USD"]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=environment)

    async def ask() -> str:
        async with Client(stdio_client(server)) as session:
            wrong = "jobId: digits_1\ntrainingInput: {scaleTier: BASIC}"
            result = await session.call_tool("check", {"document": wrong})
            return str(result.content[0].text)  # type: ignore[union-attr]

    assert "FIX  trainingInput.region is required" in anyio.run(ask)
