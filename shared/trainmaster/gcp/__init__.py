"""Google Cloud behind the ports of `trainmaster.ports`.

The same adapters run on the emulators of the local stack.

clients, retries, errors          clients and credentials, deadlines, errors: one module each
firestore                         the Store
pubsub_bus                        the Bus
storage_objects                   the Objects
job_log                           the JobLog, and reading it
compute_fleet, tpu_fleet, fleets  the Fleet
project_access, own_permissions   permissions of API callers, and of the process itself
identity_tokens, iap_assertions   senders of events, users of the console; public_keys has the keys
                                  that sign both
tools                             what only commands and clients use: `doctor`, schedules, dead
                                  letters, prices
"""

import os

# gRPC reads it when it is imported. Without it, a lost connection is printed to standard error,
# although the client reconnects by itself.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
