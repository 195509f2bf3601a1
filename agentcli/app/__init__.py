"""One conversation, composed."""
