"""Helpers of the flow `provision`: make the VMs equal the stored state."""
