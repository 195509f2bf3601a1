"""The turn loop and what it needs."""
