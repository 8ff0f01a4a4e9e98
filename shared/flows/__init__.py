"""One module per event: load, judge, commit, publish. Judging is shared.core's, effects are behind shared.ports."""
