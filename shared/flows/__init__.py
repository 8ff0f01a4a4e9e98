"""One module per event: load, judge, commit, publish.

The rules are in `shared.core`; everything outside the process is behind `shared.ports`.
"""
