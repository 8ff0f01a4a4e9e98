"""The pytest plugin: compile rules and templates once per process, not once per application.

Hundreds of tests create an application of their own. The functions that build the addresses of its
rules take most of that time, 15 ms for the console, and depend on the text of the rule alone. A
template takes 30 ms.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType

from flask import Flask
from jinja2.bccache import Bucket, BytecodeCache
from werkzeug.routing import Rule

_compiled: dict[object, Callable[..., tuple[str, str]]] = {}


class CompiledTemplates(BytecodeCache):
    """The compiled templates of all applications."""

    def __init__(self) -> None:
        self._codes: dict[str, CodeType | None] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get(bucket.key)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._codes[bucket.key] = bucket.code


def pytest_configure() -> None:
    """Let all Flask applications of this process share compiled templates and routes."""
    Flask.jinja_options = {"bytecode_cache": CompiledTemplates()}
    compile_builder = Rule._compile_builder

    def compile_once(rule: Rule, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        defaults = tuple(sorted((rule.defaults or {}).items()))
        key = rule.rule, rule.subdomain, rule.host, defaults, append_unknown
        if key not in _compiled:
            _compiled[key] = compile_builder(rule, append_unknown)
        return _compiled[key]

    Rule._compile_builder = compile_once  # type: ignore[assignment]
