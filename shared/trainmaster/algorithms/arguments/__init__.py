"""The arguments of the built-in algorithms: names, types, defaults, ranges. Standard library only.

    argument    one argument, and what is wrong with a value
    parse       a command line → values, notes and problems
    common      arguments of all algorithms for tabular data
    xgboost     boosted_trees, xgboost_dist
    keras       linear_learner, wide_deep_learner
    tab_net     tab_net
    tables      the table of each algorithm

A job's arguments are checked twice with the same tables: when the job is submitted, and by the
program on the VM.
"""
