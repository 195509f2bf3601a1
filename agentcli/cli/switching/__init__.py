"""Coming from another program: its sessions, found and taken along (CLI-8)."""
