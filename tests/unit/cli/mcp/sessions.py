"""Calls of the tools of `trainmaster mcp`, by a client of the library, on an installation in
memory.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache
from itertools import repeat
from typing import Any

import anyio
import yaml

from tests.support.jobs import a_spec
from tests.unit.cost.price_lists import FETCHED_AT, price_list
from trainmaster.cli.mcp import Tools, serve
from trainmaster.cli.mcp_budget import read_budget
from trainmaster_local.testing import Installation, MemoryApi

EXAMPLE: dict[str, Any] = {"trainmaster": {"maxCost": "5 USD"}, **a_spec()}


def an_installation() -> Installation:
    """Return an installation with list prices."""
    made = Installation(now=FETCHED_AT + timedelta(days=1))
    api = made.client._api
    assert isinstance(api, MemoryApi)
    api.service = replace(api.service, deps=replace(api.service.deps, prices=price_list))
    return made


def tools(installation: Installation, budget: str = "") -> Tools:
    """Return the tools for an installation, with what `--budget` says, such as `agents:20USD`."""
    client, store = installation.client, installation._store
    return Tools(
        client, store, read_budget(budget, client, store, price_list()) if budget else None
    )


@cache
def the_server() -> tuple[Tools, Any]:
    """Return the one server of all tests, and its tools, which each call replaces.

    To start a server takes longer than a call.
    """
    served = Tools(*repeat(None, 3))  # type: ignore[arg-type]
    return served, serve(served)


def call(tools: Tools, name: str, **arguments: object) -> tuple[str, bool]:
    """Return the answer of a tool, and whether it is an error."""
    from mcp import Client as McpClient

    served, server = the_server()
    vars(served).update(vars(tools))

    async def run() -> tuple[str, bool]:
        async with McpClient(server) as session:
            result = await session.call_tool(name, arguments)
            return result.content[0].text, bool(result.is_error)  # type: ignore[union-attr]

    return anyio.run(run)


def document(job_id: str = "digits_1", cap: str | None = "5 USD", **more: object) -> str:
    """Return the text of a job file, with `maxCost` unless `cap` is None, and more fields."""
    fields: dict[str, object] = {"jobId": job_id, **a_spec()}
    if cap:
        fields["trainmaster"] = {"maxCost": cap}
    return yaml.safe_dump(fields | more)
