"""One module per event: decode, authenticate, load, judge, commit, publish.

The rules are in `trainmaster.core`; everything outside the process is behind `trainmaster.ports`.
"""
