"""Decisions: pure, synchronous, standard library only. No clock, no I/O, no logging, no randomness.

jobs (what is stored) · events (what happened) · decisions (what it means) · judge (the rules) · evolve (the only place
state changes) · fleet (what machines should exist) · cluster (what the training code sees) · transitions (edges)
"""
