"""In-memory adapters for tests, simulations and machines without emulators: one process, no
network.

They keep the contracts of `ports`, as the adapters in `gcp` do, and pass the same contract tests.
"""
