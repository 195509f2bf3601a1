"""Sessions of other programs, and exports of our own, as new sessions (CLI-8).

Law: a file is hostile and large until read: bounded, never run, never followed; what cannot be
taken is counted and said. What comes in is a conversation and nothing that acts (SEC-16).
"""
