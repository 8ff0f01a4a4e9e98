"""The command line: `trainmaster`. One module per group of commands; what they do incarnations elsewhere."""
