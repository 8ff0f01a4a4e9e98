"""Decisions: pure, synchronous, standard library only. No clock, no I/O, no logging, no randomness.

model/         stored values: job, plan, replica, VM, tuning job
events/        facts that were reported, and what must be loaded to judge them
rules/         an event's meaning: `judge` returns a decision with one of the `actions`
transitions/   how each action changes the stored state: `evolve` applies, `ledger` records them
machines/      the table of machine types, GPUs and TPUs
reconcile/     the VMs that should exist, and the steps towards them
cluster/       how the training code sees its cluster
reporting/     decisions in words: the job's log, `why`
intake/        uploaded job files, system events
timeouts.py    every time window and threshold, with its reason
"""
