"""What VMs download, as archives that are the same for the same sources."""
