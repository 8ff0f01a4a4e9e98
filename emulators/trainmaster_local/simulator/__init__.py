"""Simulation of the whole system in virtual time, with faults.

    history ──► scheduler (virtual time)
       │  ├──► world: models of agents, programs, VMs (Compute Engine) and Pub/Sub,
       │  │           with faults as the profile says
       │  └──► functions: the real flows over trainmaster_local.memory;
       │                  every port call may crash, fail or be suspended
       └─────► invariants, checked after every action

It is single-threaded, uses no wall clock, and draws all randomness from one generator: the same
seed always gives the same history. `python -m trainmaster_local.simulator --seed N` replays one
history.
"""
