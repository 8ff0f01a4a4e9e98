"""What each page of the console shows: values without HTML, made from the stored state."""
