"""An emulator of Cloud Logging: `entries:write` and `entries:list`, which Google has no emulator for.

server (HTTP) → entries (what an entry may be, and how it is stored) · filters (the query language, as far as it is
needed here, as SQL)

Entries are kept in a file, in the order of (timestamp, insertId): they are there again after a restart, and memory
stays small however much a job prints. What is not emulated: log buckets, sinks, retention, `entries:tail`, IAM.
"""
