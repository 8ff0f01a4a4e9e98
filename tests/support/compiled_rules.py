"""The pytest plugin: compile the function that builds a rule's address once per process, not once per application.

Hundreds of tests create an application of their own. The functions of its rules take most of that time, 15 ms for the
console, and depend on the text of the rule alone.
"""

from __future__ import annotations

from collections.abc import Callable

from werkzeug.routing import Rule

_compiled: dict[object, Callable[..., tuple[str, str]]] = {}


def pytest_configure() -> None:
    compile_builder = Rule._compile_builder

    def compile_once(rule: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        defaults = tuple(sorted((rule.defaults or {}).items()))
        key = rule.rule, rule.subdomain, rule.host, defaults, append_unknown
        if key not in _compiled:
            _compiled[key] = compile_builder(rule, append_unknown)
        return _compiled[key]

    Rule._compile_builder = compile_once  # type: ignore[assignment]
