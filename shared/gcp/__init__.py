"""Google Cloud behind the ports of `shared.ports`. The same adapters run on the emulators of the local stack.

clients, retries, errors     credentials and clients, deadlines, errors: one module each
firestore_store, documents   the Store
pubsub_bus, dead_letter_box  the Bus, and messages that could not be handled
storage_objects              the Objects
job_log, log_entries         the JobLog, and reading it
compute_fleet, tpu_fleet     the Fleet; `fleets` joins them. Only `provision` imports them
project_access, identity_tokens   who calls the API, and which VM sent an event
"""
