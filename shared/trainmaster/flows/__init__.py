"""One module per event: load, judge, commit, publish.

The rules are in `trainmaster.core`; everything outside the process is behind `trainmaster.ports`.
"""
