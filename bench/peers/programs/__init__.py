"""Programs that run on the systems, in the systems' environments."""
