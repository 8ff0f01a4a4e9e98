"""What the errors of programs mean: one table, which the agent and the rules read.

    table      which messages mean what, by runtime, each row with its source
    meaning    the judgement of one error: the first row that matches it

Standard library only, and Python 3.8, because the agent carries this package to the VMs.
"""
