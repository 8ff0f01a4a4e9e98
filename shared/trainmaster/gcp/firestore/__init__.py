"""The Store on Firestore: the only durable state of Trainmaster.

`wiring.core_services` builds it, once per process; flows and commands use it as `ports.Store`.

store                            the whole Store, and the layout of the documents
states, ledger, job_queries      its parts, each with its queries
database                         paths, reads, queries and conditional writes
documents                        conversion between dataclasses and documents
"""
