"""In-memory adapters for tests, simulations and machines without emulators: one process, no network.

They keep the contracts of `shared.ports`, as the adapters in `shared.gcp` do, and pass the same contract tests.
"""
