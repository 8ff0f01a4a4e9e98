"""Adapters that only commands and clients use: no function contains them."""
