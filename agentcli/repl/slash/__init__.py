"""Slash commands: one file each."""
