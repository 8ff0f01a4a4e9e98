"""Deployment: Terraform configuration, and the source archives of the functions (`stage`)."""
