"""`make bench-peers`: the same programs on this project's local stack and on its peers, in turn, on
this machine.

Each peer is installed from PyPI into an environment of its own, and used by its own commands. The
result is docs/benchmarks.json with every single value, of which docs/benchmarks.md has a table.
"""
