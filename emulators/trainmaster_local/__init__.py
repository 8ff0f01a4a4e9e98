"""The parts of Trainmaster that need no Google Cloud: the distribution `trainmaster-local`,
together with the emulators.

cli             `trainmaster local`, `simulate` and `advise`
running_stack   the local stack that runs now, for the other commands
testing         the Python client with an installation in memory, for users' own tests
simulator       the real flows and rules in virtual time
memory          the ports in one process
"""
