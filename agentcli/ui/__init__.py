"""Events as text that users or programs read."""
