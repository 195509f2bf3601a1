"""Hooks: the person's own programs at the moments of a session."""
