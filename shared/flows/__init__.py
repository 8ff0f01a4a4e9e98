"""One module per event: load, judge, commit, publish. The judging is in shared.core, the effects behind shared.ports."""
