"""What the errors of programs mean: tables that the agent and the rules read.

    messages     which messages mean what, by runtime, each row with its source
    type_names   what a type of exception means if no message matches
    meaning      the judgement of one error: the first row that matches it
    last_words   the line with which a program without a traceback says why it exited

Standard library only, and Python 3.8, because the agent carries this package to the VMs.
"""
