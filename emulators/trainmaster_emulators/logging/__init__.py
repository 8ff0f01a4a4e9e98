"""An emulator of Cloud Logging: `entries:write` and `entries:list`. Google offers none.

    server          HTTP: routes, pages, errors
    entries         checks of an entry, and the entries' storage
    log_filter      the used part of the query language, translated to SQL

Entries are stored in a file, sorted by (timestamp, insertId). They survive a restart, and memory
use does not grow with the output of jobs. Not emulated: log buckets, sinks, retention,
`entries:tail`, IAM.
"""
