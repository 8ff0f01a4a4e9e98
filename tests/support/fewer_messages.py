"""The pytest plugin: a worker sends its reports to the main process, and not what nobody reads.

For each test, pytest-xdist sends six messages. Four of them change nothing: that the test begins, that it ends, and
that its setup and its teardown passed, which took no time. Together they cost as much CPU time as a quick test.
"""

from __future__ import annotations

from typing import Any, Final

import pytest

UNREAD: Final = frozenset({"logstart", "logfinish"})
SHORT_S: Final = 0.05
"""Longer setups and teardowns are reported: they may be among the longest durations."""


def pytest_configure(config: pytest.Config) -> None:
    """Filter the messages of a worker, unless the main process prints every test."""
    workers = [plugin for plugin in config.pluginmanager.get_plugins() if type(plugin).__name__ == "WorkerInteractor"]
    if config.get_verbosity() > 0:
        return
    for worker in workers:
        worker.sendevent = _filtered(worker.sendevent)


def _filtered(send: Any) -> Any:
    def send_what_is_read(name: str, **content: Any) -> None:
        if name not in UNREAD and not (name == "testreport" and _is_short(content["data"])):
            send(name, **content)

    return send_what_is_read


def _is_short(report: dict[str, Any]) -> bool:
    return bool(report["when"] != "call" and report["outcome"] == "passed" and report["duration"] < SHORT_S)
