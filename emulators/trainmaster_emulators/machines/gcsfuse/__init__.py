"""gcsfuse of emulated VMs: the buckets of the local stack as files, over /dev/fuse.

Standard library only.

The stack stores it where an installation stores Google's program, and the agent starts it with the
same options. Its semantics are those of gcsfuse (docs/semantics.md there) as far as programs notice
them, and never weaker: a file is in its bucket when `close` has returned, and not before, not even
after `fsync`; the second of two writers of an object gets ESTALE; metadata is cached; the list of
buckets cannot be read. There are no links, and no shared writable memory maps. An empty folder
exists only on the VM that made it, because fake-gcs-server drops its object.
"""
