"""Where things are and what is set."""
