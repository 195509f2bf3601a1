"""Checking a session file, and building a whole one out of a damaged one.

Law: the damaged file is kept, and what was read from it is said (REC-7).
"""
