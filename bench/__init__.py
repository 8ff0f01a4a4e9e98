"""Benchmarks of the control plane: `make bench`, and `make bench-quick` for one small size.

    cloud           the Firestore and Pub/Sub emulators, a store whose calls are counted, the VMs' identity tokens
    control_plane   the real flows on several threads, the bus between them in memory, VMs that are dictionary entries
    NAME            one group of measurements each: warm_events, throughput, delivery, gangs, job_cost, many_jobs
    report          the results as a table, as build/bench.json, and as docs/benchmarks.md with its plots

Every time is measured with a floor in the same run: the same calls to Google's clients without any code of ours.
"""
