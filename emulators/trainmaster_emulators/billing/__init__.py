"""An emulator of Cloud Billing's catalogue: the SKUs that jobs use in a few regions, and others
that look like them.

catalogue    the SKUs
server       services.skus.list, page by page
"""
