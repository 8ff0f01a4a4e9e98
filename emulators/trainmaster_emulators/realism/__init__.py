"""Delays, limits and refusals of Google Cloud on the local stack: `trainmaster local up
--realistic`.

`profile` names the figures with their sources; the other modules are behaviours that the emulators
compose.
"""
