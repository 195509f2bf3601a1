"""Model APIs: one file each."""
