"""`trainmaster tensorboard`: one TensorBoard for the event files of several jobs.

log_folders   where a job's event files are, and the names of its runs
mirror        a local copy of these files, which grows with them
command       the command: keeps the copy up to date while TensorBoard shows it
"""
