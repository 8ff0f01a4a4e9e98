"""How far the program is: what it reports, prints, or writes as summary events."""
