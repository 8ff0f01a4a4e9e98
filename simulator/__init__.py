"""The whole system in virtual time, one seed per history: the real flows, against everything that can go wrong.

    history ──► scheduler (virtual time)
       │  ├──► agents, training, machines (Compute Engine), bus (Pub/Sub): models, each breaking as its profile says
       │  └──► functions: the real shared.flows over shared.memory; every port call may crash, fail, or let others run
       └─────► watch: the invariants, after every step

Single-threaded, no wall clock, all randomness from one generator: the same seed is the same history, always.
`python -m simulator --seed N` replays one, `python -m simulator.soak` runs many.
"""
