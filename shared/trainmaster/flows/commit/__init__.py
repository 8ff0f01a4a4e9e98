"""The one commit that every event goes through, and what belongs to it."""
