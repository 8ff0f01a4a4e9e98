"""The content of each page of the console: values without HTML, derived from the stored state."""
