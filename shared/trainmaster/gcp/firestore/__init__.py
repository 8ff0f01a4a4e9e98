"""The Store on Firestore.

store                            the whole Store, and the layout of the documents
states, ledger, job_queries      its parts, each with its queries
database                         paths, reads, queries and conditional writes
documents                        conversion between dataclasses and documents
"""
