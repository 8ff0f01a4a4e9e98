"""The ports in one process, without a network: for tests, simulations, and machines without emulators.

They keep the same promises as the adapters in shared.gcp and pass the same contract tests.
"""
