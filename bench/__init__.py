"""Benchmarks: `make bench` of the control plane, `make bench-peers` of whole jobs beside other
systems.

cloud           the Firestore emulator, a store whose calls are counted, the VMs' identity tokens
control_plane   the real flows on several threads, the bus between them in memory, VMs that are
                dictionary entries
kept_machines   how soon programs start on kept machines of a local stack with Google's durations
NAME            one group of measurements each: gangs, job_cost, many_jobs
peers           the same programs on the local stack and on its peers
report          the results as docs/benchmarks.json, as plots, and as the table of the page
"""
