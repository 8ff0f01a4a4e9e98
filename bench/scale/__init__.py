"""A large installation in virtual time: the real flows, with the rates and quotas of Google Cloud around them.

    jobs are submitted over ARRIVAL_S ── VMs boot for BOOT_S ── all replicas report ── they train ── all exit 0

Each call of a port takes time, each function has its instances, and Compute Engine refuses changes above its quota.
Nothing fails otherwise. The result contains the calls of each minute, and how long jobs waited because of a quota.
`python -m bench.scale --jobs 10000 --replicas 10` runs 100,000 replicas.
"""
